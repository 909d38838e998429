#include "kernels/cuda/cudnn_statistics.h"

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 128;

// In fp64, so that each result is rounded once.
__global__ void __launch_bounds__(kThreads)
    keep_statistics(uint32_t channels, double count, double momentum, const float* mean, const float* unbiased,
                    AnyTyped variance, AnyTyped running_mean, AnyTyped running_variance) {
  const uint32_t c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= channels) return;
  variance.store<double>(c, unbiased[c] * ((count - 1) / count));
  running_mean.store<double>(
      c, formulas::moving_average(running_mean.load<double>(c), static_cast<double>(mean[c]), momentum));
  running_variance.store<double>(
      c, formulas::moving_average(running_variance.load<double>(c), static_cast<double>(unbiased[c]), momentum));
}

__global__ void __launch_bounds__(kThreads)
    invert_deviations(uint32_t channels, const float* variance, double epsilon, float* inverse) {
  const uint32_t c = blockIdx.x * kThreads + threadIdx.x;
  if (c < channels)
    inverse[c] = static_cast<float>(formulas::batch_norm_inverse(static_cast<double>(variance[c]), epsilon));
}

uint32_t blocks_for(uint32_t channels) { return (channels + kThreads - 1) / kThreads; }

}  // namespace

void launch_keep_statistics(cudaStream_t stream, const Channels& c, double momentum, const float* mean,
                            const float* unbiased, Array variance, Array running_mean, Array running_variance) {
  keep_statistics<<<blocks_for(c.channels), kThreads, 0, stream>>>(c.channels, static_cast<double>(c.count()), momentum,
                                                                   mean, unbiased, AnyTyped(variance),
                                                                   AnyTyped(running_mean), AnyTyped(running_variance));
  launched("batch_norm: statistics");
}

void launch_invert_deviations(cudaStream_t stream, uint32_t channels, const float* variance, double epsilon,
                              float* inverse) {
  invert_deviations<<<blocks_for(channels), kThreads, 0, stream>>>(channels, variance, epsilon, inverse);
  launched("batch_norm_backward: deviations");
}

}  // namespace halfmark::kernels::cuda
