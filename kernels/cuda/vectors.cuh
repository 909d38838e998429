// Several neighbouring elements as one access of up to 16 bytes (of slices, which begin anywhere, one after another), for
// code that computes with them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {

// `count` elements of an Access, as they are in memory.
template <class Access, class Wide, uint32_t count>
struct Vector;

template <class Access, class Wide>
struct Vector<Access, Wide, 1> {
  Wide value;
  __device__ __forceinline__ void load(const Access& from, uint32_t i) { value = from.template load<Wide>(i); }
  __device__ __forceinline__ Wide operator[](uint32_t) const { return value; }
  static __device__ __forceinline__ void store(const Access& to, uint32_t i, const Wide* x) {
    to.template store<Wide>(i, *x);
  }
};

template <class T, class Wide, uint32_t count>
requires(count > 1) struct Vector<Typed<T>, Wide, count> {
  static constexpr size_t kBytes = sizeof(T) * count;
  static_assert(kBytes == 16 || kBytes == 8);
  using Unit = std::conditional_t<kBytes == 16, uint4, uint2>;
  Unit unit;
  static __device__ __forceinline__ bool one_access(const Typed<T>& array) {
    return reinterpret_cast<uintptr_t>(array.data) % kBytes == 0;
  }
  __device__ __forceinline__ void load(const Typed<T>& from, uint32_t i) {
    if (one_access(from)) {
      unit = *reinterpret_cast<const Unit*>(from.data + i);
    } else {
      T values[count];
#pragma unroll
      for (uint32_t k = 0; k < count; ++k) values[k] = from.data[i + k];
      memcpy(&unit, values, kBytes);
    }
  }
  __device__ __forceinline__ Wide operator[](uint32_t k) const {
    T values[count];
    memcpy(values, &unit, kBytes);
    return computed<Wide>(values[k]);
  }
  static __device__ __forceinline__ void store(const Typed<T>& to, uint32_t i, const Wide* x) {
    T values[count];
#pragma unroll
    for (uint32_t k = 0; k < count; ++k) narrow(x[k], values[k]);
    if (one_access(to)) {
      Unit all;
      memcpy(&all, values, kBytes);
      *reinterpret_cast<Unit*>(to.data + i) = all;
    } else {
#pragma unroll
      for (uint32_t k = 0; k < count; ++k) to.data[i + k] = values[k];
    }
  }
};

template <class Access>
constexpr uint32_t kWidest = 1;
template <class T>
constexpr uint32_t kWidest<Typed<T>> = 16 / sizeof(T);

// f(width) with the largest number of neighbours that divides `run`. It does not depend on where the arrays begin, so that
// sums do not either.
template <class Access, class F>
void with_width(uint32_t run, F&& f) {
  constexpr uint32_t widest = kWidest<Access>;
  if constexpr (widest > 1)
    if (run % widest == 0) return f(std::integral_constant<uint32_t, widest>{});
  if constexpr (widest == 8)
    if (run % 4 == 0) return f(std::integral_constant<uint32_t, 4>{});
  return f(std::integral_constant<uint32_t, 1>{});
}

}  // namespace halfmark::kernels::cuda
