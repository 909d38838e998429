// Batch norm whose sums are rounded after each addition: a thread adds a channel. Mean and variance have the bits of
// the CPU's reference.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/channel_maps.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/launch_in_order.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 64;

template <class T>
__device__ double rounded(double x) {
  T narrowed;
  narrow(x, narrowed);
  return widen<double>(narrowed);
}

template <class T>
__global__ void __launch_bounds__(kThreads) sum_in_order(Channels c, AnyTyped x, StoreStatistics<double> store) {
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= c.channels) return;
  const auto each = [&](auto add) {
    for (uint32_t n = 0; n < c.outer; ++n)
      for (uint32_t p = 0; p < c.pixels; ++p)
        add(x.load<double>(c.last ? (n * c.pixels + p) * c.channels + channel
                                  : (n * c.channels + channel) * c.pixels + p));
  };
  double sum = 0, squares = 0;
  each([&](double value) { sum = rounded<T>(sum + value); });
  const double mean = sum / static_cast<double>(c.outer * c.pixels);
  each([&](double value) { squares = rounded<T>(squares + (value - mean) * (value - mean)); });
  Moments<double> moments{};
  moments.shift = mean, moments.squares = squares;
  store(channel, moments);
}

}  // namespace

void launch_batch_norm_in_order(cudaStream_t stream, const Channels& c, DType sums, void* memory,
                                const BatchNormArrays& a, double momentum, double epsilon) {
  const Scratch<double> scratch(memory, c);
  const StoreStatistics<double> store{AnyTyped(a.scale),
                                      AnyTyped(a.shift),
                                      AnyTyped(a.mean),
                                      AnyTyped(a.variance),
                                      AnyTyped(a.running_mean),
                                      AnyTyped(a.running_variance),
                                      scratch.factors,
                                      static_cast<double>(c.count()),
                                      momentum,
                                      epsilon};
  const uint32_t blocks = (c.channels + kThreads - 1) / kThreads;
  const AnyTyped x(a.x), out(a.out);
  if (sums == DType::f16)
    sum_in_order<__half><<<blocks, kThreads, 0, stream>>>(c, x, store);
  else if (sums == DType::bf16)
    sum_in_order<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(c, x, store);
  else if (sums == DType::f32)
    sum_in_order<float><<<blocks, kThreads, 0, stream>>>(c, x, store);
  else
    sum_in_order<double><<<blocks, kThreads, 0, stream>>>(c, x, store);
  launched("batch_norm");
  map_channels<AnyTyped>(stream, c, Normalise<double, AnyTyped, Known<double>>{x, out, Known<double>{scratch.factors}});
  launched("batch_norm");
}

}  // namespace halfmark::kernels::cuda
