// Kernels that compute each element by itself: a thread takes four elements or eight, neighbours where they
// are one access, else one after another.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

constexpr uint32_t kMapThreads = 256;

// What a thread takes: of 16-bit elements eight, so that an access is of 16 bytes.
template <class In, class Out>
__host__ __device__ constexpr uint32_t map_share() {
  if constexpr (!In::kFours || !Out::kFours)
    return 4;
  else
    return In::kNeighbours > Out::kNeighbours ? In::kNeighbours : Out::kNeighbours;
}

// Loads operands for f. If f only does arithmetic (F::Computes), the sign of a NaN need not be kept.
template <class Wide, uint32_t kCount, class F, class Access>
__device__ __forceinline__ void load_for(const Access& x, uint32_t i, Wide* values) {
  if constexpr (requires { requires F::Computes::value; }) {
    x.template load_numbers<Wide, kCount>(i, values);
  } else {
    x.template load_all<Wide, kCount>(i, values);
  }
}

// value[k] = f(i + k, value[k]); an f that has something in common for neighbours takes all at once.
template <uint32_t kCount, class Wide, class F>
__device__ __forceinline__ void map_all(const F& f, uint32_t i, Wide* value) {
  if constexpr (requires { f.template all<kCount>(i, value); }) {
    f.template all<kCount>(i, value);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) value[k] = f(i + k, value[k]);
  }
}

// out[i] = f(i, x[i])
template <class Wide, class In, class Out, class F>
__global__ void __launch_bounds__(kMapThreads) map_one(uint32_t n, In x, Out out, F f) {
  constexpr uint32_t kShare = map_share<In, Out>();
  if constexpr (!In::kFours || !Out::kFours) {
#pragma unroll 1
    for (uint32_t k = 0; k < kShare; ++k) {
      const uint32_t j = (blockIdx.x * kShare + k) * kMapThreads + threadIdx.x;
      if (j < n) out.template store<Wide>(j, f(j, x.template load<Wide>(j)));
    }
  } else {
    const uint32_t i = (blockIdx.x * kMapThreads + threadIdx.x) * kShare;
    if (i >= n) return;
    if (n - i >= kShare && x.aligned && out.aligned) {
      __builtin_assume(x.aligned && out.aligned);
      Wide value[kShare];
      load_for<Wide, kShare, F>(x, i, value);
      map_all<kShare>(f, i, value);
      out.template store_all<Wide, kShare>(i, value);
      return;
    }
    const uint32_t end = n - i < kShare ? n : i + kShare;
#pragma unroll 1
    for (uint32_t j = i; j < end; ++j) out.template store<Wide>(j, f(j, x.template load<Wide>(j)));
  }
}

// out[i] = f(i, a[i], b[i])
template <class Wide, class Access, class F>
__global__ void __launch_bounds__(kMapThreads) map_two(uint32_t n, Access a, Access b, Access out, F f) {
  constexpr uint32_t kShare = map_share<Access, Access>();
  if constexpr (!Access::kFours) {
#pragma unroll 1
    for (uint32_t k = 0; k < kShare; ++k) {
      const uint32_t j = (blockIdx.x * kShare + k) * kMapThreads + threadIdx.x;
      if (j < n) out.template store<Wide>(j, f(j, a.template load<Wide>(j), b.template load<Wide>(j)));
    }
  } else {
    const uint32_t i = (blockIdx.x * kMapThreads + threadIdx.x) * kShare;
    if (i >= n) return;
    if (n - i >= kShare && a.aligned && b.aligned && out.aligned) {
      __builtin_assume(a.aligned && b.aligned && out.aligned);
      Wide left[kShare], right[kShare];
      load_for<Wide, kShare, F>(a, i, left);
      load_for<Wide, kShare, F>(b, i, right);
#pragma unroll
      for (uint32_t k = 0; k < kShare; ++k) left[k] = f(i + k, left[k], right[k]);
      out.template store_all<Wide, kShare>(i, left);
      return;
    }
    const uint32_t end = n - i < kShare ? n : i + kShare;
#pragma unroll 1
    for (uint32_t j = i; j < end; ++j)
      out.template store<Wide>(j, f(j, a.template load<Wide>(j), b.template load<Wide>(j)));
  }
}

template <class Wide, class In, class Out, class F>
void start_one(cudaStream_t stream, uint32_t n, In x, Out out, F f) {
  map_one<Wide><<<blocks_for(n, map_share<In, Out>() * kMapThreads), kMapThreads, 0, stream>>>(n, x, out, f);
}
template <class Wide, class Access, class F>
void start_two(cudaStream_t stream, uint32_t n, Access a, Access b, Access out, F f) {
  map_two<Wide><<<blocks_for(n, map_share<Access, Access>() * kMapThreads), kMapThreads, 0, stream>>>(n, a, b, out, f);
}

}  // namespace halfmark::kernels::cuda
