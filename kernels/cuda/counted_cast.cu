// A cast that counts what rounding changed, from the numbers that it has stored.
#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/maps.cuh"
#include "kernels/number/format.h"

namespace halfmark::kernels::cuda {
namespace {

struct Counts {
  uint32_t inexact = 0, overflow = 0, underflow = 0, subnormal = 0;
  template <class Wide>
  __device__ __forceinline__ void add(Wide x, Wide stored, Wide least_normal) {
    if (x == 0 || !isfinite(x)) return;
    const bool fits = isfinite(stored);  // each format of device code has NaN, or infinities, to which it overflows
    inexact += stored != x, overflow += !fits, underflow += stored == 0;
    subnormal += stored != 0 && fabs(stored) < least_normal;
  }
};

template <class Wide, class In, class Out>
__global__ void __launch_bounds__(kMapThreads)
    counted_cast(uint32_t n, In x, Out out, Wide least_normal, double* events) {
  constexpr uint32_t kShare = map_share<In, Out>();
  __shared__ uint32_t shared[kMostWarps];
  Counts counts;
  const uint32_t packs = n / kShare + (n % kShare != 0);
  for (uint32_t pack = blockIdx.x * kMapThreads + threadIdx.x; pack < packs; pack += gridDim.x * kMapThreads) {
    const uint32_t i = pack * kShare, end = n - i < kShare ? n : i + kShare;
    if constexpr (In::kFours && Out::kFours) {
      if (end - i == kShare && x.aligned && out.aligned) {
        __builtin_assume(x.aligned && out.aligned);
        Wide value[kShare];
        x.template load_all<Wide, kShare>(i, value);
        Neighbours<typename Out::Element, kShare> stored;
        narrow_all<kShare>(value, stored.values);
        stored.write(out.data + i);
#pragma unroll
        for (uint32_t k = 0; k < kShare; ++k) counts.add(value[k], widen<Wide>(stored.values[k]), least_normal);
        continue;
      }
    }
#pragma unroll 1
    for (uint32_t j = i; j < end; ++j) {
      const Wide value = x.template load<Wide>(j);
      out.template store<Wide>(j, value);
      counts.add(value, out.template load<Wide>(j), least_normal);
    }
  }
  const uint32_t own[] = {counts.inexact, counts.overflow, counts.underflow, counts.subnormal};
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t sum = over_block(own[k], shared, Plus());
    if (threadIdx.x == 0 && sum > 0) atomicAdd(events + k, static_cast<double>(sum));  // exact in any order
  }
}

template <class Wide, class In, class Out>
void start(cudaStream_t stream, uint32_t n, In x, Out out, const Format& to, double* events) {
  // A few blocks add to the events, so that few wait for each other.
  const uint32_t blocks = std::min(blocks_for(n, map_share<In, Out>() * kMapThreads), uint32_t{2048});
  counted_cast<Wide>
      <<<blocks, kMapThreads, 0, stream>>>(n, x, out, static_cast<Wide>(power_of_two(to.min_exponent())), events);
}

// f with a view of an array of these dtypes, which casts are made of in training; of any other as AnyTyped.
template <class F>
void with_view(const Array& array, F&& f) {
  if (array.dtype == DType::f32) return f(Typed<float>(array));
  if (array.dtype == DType::f16) return f(Typed<__half>(array));
  if (array.dtype == DType::bf16) return f(Typed<__nv_bfloat16>(array));
  f(AnyTyped(array));
}

}  // namespace

void launch_counted_cast(cudaStream_t stream, uint32_t n, Array x, Array out, double* events) {
  const Format& to = format_of(out.dtype);
  if (x.dtype == DType::f64)
    start<double>(stream, n, AnyTyped(x), AnyTyped(out), to, events);
  else
    with_view(x,
              [&](auto from) { with_view(out, [&](auto into) { start<float>(stream, n, from, into, to, events); }); });
  launched("counted cast");
}

}  // namespace halfmark::kernels::cuda
