// What batch norm keeps, from what cuDNN keeps, and back: the interface of cudnn_statistics.cu.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace halfmark::kernels::cuda {

// From the mean and the unbiased variance of a batch.
void launch_keep_statistics(cudaStream_t, const Channels&, double momentum, const float* mean, const float* unbiased,
                            Array variance, Array running_mean, Array running_variance);
// inverse = 1 / sqrt(variance + epsilon)
void launch_invert_deviations(cudaStream_t, uint32_t channels, const float* variance, double epsilon, float* inverse);

}  // namespace halfmark::kernels::cuda
