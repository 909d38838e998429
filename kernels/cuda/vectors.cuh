// Several neighbouring elements as one access of up to 16 bytes, for code that computes with them: unlike widen() it does
// not keep the sign of a NaN, which no result of arithmetic has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {

template <class Wide>
__device__ __forceinline__ Wide computed(double x) {
  return static_cast<Wide>(x);
}
template <class Wide>
__device__ __forceinline__ Wide computed(float x) {
  return static_cast<Wide>(x);
}
template <class Wide>
__device__ __forceinline__ Wide computed(__half x) {
  return static_cast<Wide>(__half2float(x));
}
template <class Wide>
__device__ __forceinline__ Wide computed(__nv_bfloat16 x) {
  return static_cast<Wide>(__uint_as_float(static_cast<uint32_t>(__bfloat16_as_ushort(x)) << 16));
}

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
  __device__ __forceinline__ void load(const Typed<T>& from, uint32_t i) {
    unit = *reinterpret_cast<const Unit*>(from.data + i);
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
    Unit unit;
    memcpy(&unit, values, kBytes);
    *reinterpret_cast<Unit*>(to.data + i) = unit;
  }
};

template <class Access>
constexpr uint32_t kWidest = 1;
template <class T>
constexpr uint32_t kWidest<Typed<T>> = 16 / sizeof(T);

inline bool allow_vectors(std::initializer_list<Array> arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [](const Array& a) { return reinterpret_cast<uintptr_t>(a.data) % 16 == 0; });
}

// f(width) with the largest number of neighbours that divides `run`, if the arrays allow such accesses.
template <class Access, class F>
void with_width(std::initializer_list<Array> arrays, uint32_t run, F&& f) {
  constexpr uint32_t widest = kWidest<Access>;
  const bool allowed = allow_vectors(arrays);
  if constexpr (widest > 1)
    if (allowed && run % widest == 0) return f(std::integral_constant<uint32_t, widest>{});
  if constexpr (widest == 8)
    if (allowed && run % 4 == 0) return f(std::integral_constant<uint32_t, 4>{});
  return f(std::integral_constant<uint32_t, 1>{});
}

}  // namespace halfmark::kernels::cuda
