// The interface between host and device code for sums that are added one after the other (in_order.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"

namespace halfmark::kernels::cuda {

// As launch_batch_norm(), in fp64; the sums are rounded to `sums` (f16, bf16, f32 or f64) after each addition. scratch: of
// doubles.
void launch_batch_norm_in_order(cudaStream_t, const Channels&, DType sums, void* scratch, const BatchNormArrays&,
                                double momentum, double epsilon);

}  // namespace halfmark::kernels::cuda
