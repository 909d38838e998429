// Kernels that compute each element by itself: a thread takes four elements, neighbours where they are one access.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

constexpr uint32_t kMapThreads = 256;

// out[i] = f(i, x[i])
template <class Wide, class In, class Out, class F>
__global__ void __launch_bounds__(kMapThreads) map_one(uint32_t n, In x, Out out, F f) {
  if constexpr (!In::kFours || !Out::kFours) {
#pragma unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t j = (blockIdx.x * 4 + k) * kMapThreads + threadIdx.x;
      if (j < n) out.template store<Wide>(j, f(j, x.template load<Wide>(j)));
    }
  } else {
    const uint32_t i = (blockIdx.x * kMapThreads + threadIdx.x) * 4;
    if (i >= n) return;
    if (n - i >= 4) {
      Wide value[4];
      x.template load4<Wide>(i, value);
      for (int k = 0; k < 4; ++k) value[k] = f(i + k, value[k]);
      out.template store4<Wide>(i, value);
      return;
    }
    for (uint32_t j = i; j < n; ++j) out.template store<Wide>(j, f(j, x.template load<Wide>(j)));
  }
}

// out[i] = f(i, a[i], b[i])
template <class Wide, class Access, class F>
__global__ void __launch_bounds__(kMapThreads) map_two(uint32_t n, Access a, Access b, Access out, F f) {
  if constexpr (!Access::kFours) {
#pragma unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t j = (blockIdx.x * 4 + k) * kMapThreads + threadIdx.x;
      if (j < n) out.template store<Wide>(j, f(j, a.template load<Wide>(j), b.template load<Wide>(j)));
    }
  } else {
    const uint32_t i = (blockIdx.x * kMapThreads + threadIdx.x) * 4;
    if (i >= n) return;
    if (n - i >= 4) {
      Wide left[4], right[4];
      a.template load4<Wide>(i, left);
      b.template load4<Wide>(i, right);
      for (int k = 0; k < 4; ++k) left[k] = f(i + k, left[k], right[k]);
      out.template store4<Wide>(i, left);
      return;
    }
    for (uint32_t j = i; j < n; ++j)
      out.template store<Wide>(j, f(j, a.template load<Wide>(j), b.template load<Wide>(j)));
  }
}

template <class Wide, class In, class Out, class F>
void start_one(cudaStream_t stream, uint32_t n, In x, Out out, F f) {
  map_one<Wide><<<blocks_for(n, 4 * kMapThreads), kMapThreads, 0, stream>>>(n, x, out, f);
}
template <class Wide, class Access, class F>
void start_two(cudaStream_t stream, uint32_t n, Access a, Access b, Access out, F f) {
  map_two<Wide><<<blocks_for(n, 4 * kMapThreads), kMapThreads, 0, stream>>>(n, a, b, out, f);
}

}  // namespace halfmark::kernels::cuda
