// Softmax of rows whose values stay in registers.
#pragma once

#include <cstdint>

#include "kernels/cuda/row_packs.cuh"

namespace halfmark::kernels::cuda {

// x / sum, from 1 / sum: one rounding nearly always, for fewer instructions than a division has.
template <class Wide>
__device__ __forceinline__ Wide quotient(Wide x, Wide sum, Wide inverse) {
  const Wide near = x * inverse;
  return fma(fma(-near, sum, x), inverse, near);
}

// A thread reads the values that it writes, so that out may be x.
template <class Wide, class T, uint32_t kPacks, bool kOfWarp>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    softmax_packs(SoftmaxForm s, uint32_t rows, uint32_t lanes, const T* x, T* out) {
  constexpr uint32_t N = kPack<T>;
  __shared__ Wide shared[kMostWarps];
  const RowThreads<kOfWarp> me(lanes);
  const uint32_t all = s.width / N, packs = me.row < rows ? all : 0;
  const uint32_t seen = s.queries ? min(s.width, me.row % s.queries + 1) : s.width;
  Wide value[kPacks * N], sum = 0;
  Largest<Wide> largest;
  load_row<kPacks>(me, x, me.row * all, packs, value);
  if (s.queries) {
    each_pack<kPacks, N>(me, packs, [&](uint32_t v, uint32_t number) {
#pragma unroll
      for (uint32_t k = 0; k < N; ++k)
        if (number * N + k >= seen) value[v + k] = minus_infinity<Wide>();
    });
  }
  each_pack<kPacks, N>(me, packs, [&](uint32_t v, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; k += 2) largest.add(value[v + k], value[v + k + 1]);
  });
  const Wide top = me.over(largest.value(), shared, Larger());
  each_pack<kPacks, N>(me, packs, [&](uint32_t v, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
      const Wide power = exp(value[v + k] - top);
      sum += power;
      if (!s.log) value[v + k] = power;
    }
  });
  sum = me.over(sum, shared, Plus());
  const bool nothing = s.masked && top == minus_infinity<Wide>();
  const Wide log_sum = s.log ? log(sum) : Wide(0), inverse = Wide(1) / sum;
  each_pack<kPacks, N>(me, packs, [&](uint32_t v, uint32_t number) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k)
      value[v + k] = s.log ? value[v + k] - top - log_sum : quotient(value[v + k], sum, inverse);
    if (s.queries || nothing) {
#pragma unroll
      for (uint32_t k = 0; k < N; ++k)
        if (nothing || number * N + k >= seen) value[v + k] = 0;
    }
    store_pack(out, me.row * all + number, value + v);
  });
}

template <class Wide, class T, uint32_t kPacks, bool kOfWarp>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    softmax_packs_backward(uint32_t width, uint32_t rows, uint32_t lanes, bool log, const T* y, const T* dy, T* dx) {
  constexpr uint32_t N = kPack<T>;
  __shared__ Wide shared[kMostWarps];
  const RowThreads<kOfWarp> me(lanes);
  const uint32_t all = width / N, packs = me.row < rows ? all : 0;
  Pack<T> left[kPacks], right[kPacks];
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) {
    left[p] = load_pack(y, me.row * all + number), right[p] = load_pack(dy, me.row * all + number);
  });
  Wide sum = 0;
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
      const Wide b = plain(right[p][k]);
      sum += log ? b : b * plain(left[p][k]);
    }
  });
  sum = me.over(sum, shared, Plus());
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) {
    Wide result[N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
      const Wide a = plain(left[p][k]), b = plain(right[p][k]);
      result[k] = log ? b - exp(a) * sum : a * (b - sum);
    }
    store_pack(dx, me.row * all + number, result);
  });
}

// These return whether the rows fit.
template <class Wide, class T>
bool start_softmax_packs(cudaStream_t stream, uint32_t rows, const SoftmaxForm& s, const Array& x, const Array& out) {
  const RowShape shape = row_shape(rows, s.width, kPack<T>);
  if (!shape.fits || !starts_pack(x.data) || !starts_pack(out.data)) return false;
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    softmax_packs<Wide, T, packs(), of_warp()><<<shape.blocks, shape.threads, 0, stream>>>(
        s, rows, shape.lanes, static_cast<const T*>(x.data), static_cast<T*>(out.data));
  });
  return true;
}

template <class Wide, class T>
bool start_softmax_packs_backward(cudaStream_t stream, uint32_t rows, uint32_t width, bool log, const Array& y,
                                  const Array& dy, const Array& dx) {
  const RowShape shape = row_shape(rows, width, kPack<T>);
  if (!shape.fits || !starts_pack(y.data) || !starts_pack(dy.data) || !starts_pack(dx.data)) return false;
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    softmax_packs_backward<Wide, T, packs(), of_warp()>
        <<<shape.blocks, shape.threads, 0, stream>>>(width, rows, shape.lanes, log, static_cast<const T*>(y.data),
                                                     static_cast<const T*>(dy.data), static_cast<T*>(dx.data));
  });
  return true;
}

}  // namespace halfmark::kernels::cuda
