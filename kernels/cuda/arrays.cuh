// How device code reads and writes elements: exact widening, and one rounding to nearest even when writing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

struct E4m3 {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E4M3;
  uint8_t code;
};
struct E5m2 {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E5M2;
  uint8_t code;
};

// A quiet NaN of that sign: the conversion instructions drop the sign, decode() and encode() keep it.
template <class Wide>
__device__ __forceinline__ Wide nan_of(bool negative) {
  const float nan = __int_as_float(0x7fc00000);
  return copysign(static_cast<Wide>(nan), negative ? Wide(-1) : Wide(1));
}

template <class Wide>
__device__ __forceinline__ Wide widen(double x) {
  return static_cast<Wide>(x);  // never to float: with_access chooses double if an operand is f64
}
template <class Wide>
__device__ __forceinline__ Wide widen(float x) {
  return sizeof(Wide) > sizeof(float) && isnan(x) ? nan_of<Wide>(signbit(x)) : static_cast<Wide>(x);
}
// In float without a test: the conversion of a NaN is a NaN, and the sign of every number is put back.
template <class Wide>
__device__ __forceinline__ Wide widen(__half x) {
  if constexpr (sizeof(Wide) > sizeof(float)) {
    return __hisnan(x) ? nan_of<Wide>(__half_as_ushort(x) >> 15) : static_cast<Wide>(__half2float(x));
  } else {
    const uint32_t sign = static_cast<uint32_t>(__half_as_ushort(x)) << 16 & 0x80000000u;
    return __uint_as_float((__float_as_uint(__half2float(x)) & 0x7fffffffu) | sign);
  }
}
template <class Wide>
__device__ __forceinline__ Wide widen(__nv_bfloat16 x) {
  return widen<Wide>(__uint_as_float(static_cast<uint32_t>(__bfloat16_as_ushort(x)) << 16));
}
template <class Wide>
__device__ __forceinline__ Wide widen(E4m3 x) {
  if ((x.code & 0x7f) == 0x7f) return nan_of<Wide>(x.code >> 7);
  return widen<Wide>(__half(__nv_cvt_fp8_to_halfraw(x.code, __NV_E4M3)));
}
template <class Wide>
__device__ __forceinline__ Wide widen(E5m2 x) {
  return widen<Wide>(__ushort_as_half(static_cast<unsigned short>(x.code << 8)));  // E5M2 is the upper half of FP16
}

// Widens a value for arithmetic. The sign of a NaN may be lost: results of arithmetic do not have it.
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

// NaNs become the quiet NaN of the type and keep their sign; a payload is not propagated.
__device__ __forceinline__ void narrow(double x, double& to) { to = isnan(x) ? nan_of<double>(signbit(x)) : x; }
__device__ __forceinline__ void narrow(float x, double& to) { to = widen<double>(x); }
__device__ __forceinline__ void narrow(float x, float& to) {
  to = isnan(x) ? __int_as_float(signbit(x) ? 0xffc00000 : 0x7fc00000) : x;
}
__device__ __forceinline__ void narrow(double x, float& to) {
  to = isnan(x) ? __int_as_float(signbit(x) ? 0xffc00000 : 0x7fc00000) : __double2float_rn(x);
}
__device__ __forceinline__ void narrow(float x, __half& to) {
  to = isnan(x) ? __ushort_as_half(signbit(x) ? 0xfe00 : 0x7e00) : __float2half_rn(x);
}
__device__ __forceinline__ void narrow(double x, __half& to) {
  to = isnan(x) ? __ushort_as_half(signbit(x) ? 0xfe00 : 0x7e00) : __double2half(x);
}
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) {
  to = isnan(x) ? __ushort_as_bfloat16(signbit(x) ? 0xffc0 : 0x7fc0) : __float2bfloat16_rn(x);
}
__device__ __forceinline__ void narrow(double x, __nv_bfloat16& to) {
  to = isnan(x) ? __ushort_as_bfloat16(signbit(x) ? 0xffc0 : 0x7fc0) : __double2bfloat16(x);
}

// From double, with a single rounding in the conversion; overflow
// becomes NaN (E4M3) or infinity (E5M2), as in encode().
__device__ __forceinline__ void narrow(double x, E4m3& to) {
  to.code = __nv_cvt_double_to_fp8(x, __NV_NOSAT, __NV_E4M3);
}
__device__ __forceinline__ void narrow(double x, E5m2& to) {
  to.code = isnan(x) ? (signbit(x) ? 0xfe : 0x7e) : __nv_cvt_double_to_fp8(x, __NV_NOSAT, __NV_E5M2);
}

// From float. Where the result is finite an instruction of sm_89 and later gives it; it has no form that overflows as above.
// Half a step above 448 is a tie that rounds to 448; half a step above 57344 rounds to infinity.
__device__ __forceinline__ bool fits(float x, E4m3) { return fabsf(x) <= 464.0f; }
__device__ __forceinline__ bool fits(float x, E5m2) { return fabsf(x) < 61440.0f; }
template <class Fp8>
__device__ __forceinline__ void narrow_fp8(float x, Fp8& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (fits(x, Fp8{})) {
    to.code = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, Fp8::kKind);
    return;
  }
#endif
  narrow(widen<double>(x), to);
}
__device__ __forceinline__ void narrow(float x, E4m3& to) { narrow_fp8(x, to); }
__device__ __forceinline__ void narrow(float x, E5m2& to) { narrow_fp8(x, to); }

// kCount neighbours with one rounding each. What needs care is rare: one test for all of them, and then the slow way.
template <uint32_t kCount, class Wide, class T>
__device__ __forceinline__ void narrow_all(const Wide* x, T* to) {
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) narrow(x[k], to[k]);
}
__device__ __forceinline__ void narrow_pair(float a, float b, float* to) { to[0] = a, to[1] = b; }
__device__ __forceinline__ void narrow_pair(float a, float b, __half* to) {
  const __half2 pair = __floats2half2_rn(a, b);
  to[0] = pair.x, to[1] = pair.y;
}
__device__ __forceinline__ void narrow_pair(float a, float b, __nv_bfloat16* to) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  to[0] = pair.x, to[1] = pair.y;
}
template <class Fp8>
__device__ __forceinline__ void narrow_pair_fp8(float a, float b, Fp8* to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  const __nv_fp8x2_storage_t pair = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, Fp8::kKind);
  to[0].code = static_cast<uint8_t>(pair), to[1].code = static_cast<uint8_t>(pair >> 8);
#else
  narrow(a, to[0]), narrow(b, to[1]);
#endif
}
__device__ __forceinline__ void narrow_pair(float a, float b, E4m3* to) { narrow_pair_fp8(a, b, to); }
__device__ __forceinline__ void narrow_pair(float a, float b, E5m2* to) { narrow_pair_fp8(a, b, to); }

// Whether narrow() does more with one of them than round. Whether one of two is NaN is one comparison.
template <class T>
__device__ __forceinline__ bool needs_care(float a, float b, const T*) {
  return a != a || b != b;
}
__device__ __forceinline__ bool needs_care(float a, float b, const E4m3*) {
  return !fits(a, E4m3{}) || !fits(b, E4m3{});
}
__device__ __forceinline__ bool needs_care(float a, float b, const E5m2*) {
  return !fits(a, E5m2{}) || !fits(b, E5m2{});
}

template <uint32_t kCount, class T>
__device__ __forceinline__ void narrow_all(const float* x, T* to) {
  bool any = false;
#pragma unroll
  for (uint32_t k = 0; k < kCount; k += 2) any |= needs_care(x[k], x[k + 1], to);
  if (any) {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) narrow(x[k], to[k]);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < kCount; k += 2) narrow_pair(x[k], x[k + 1], to + k);
  }
}

template <uint32_t kBytes>
struct UnitOfBytes {
  using Type = uint4;
};
template <>
struct UnitOfBytes<8> {
  using Type = uint2;
};
template <>
struct UnitOfBytes<4> {
  using Type = uint32_t;
};
template <>
struct UnitOfBytes<2> {
  using Type = uint16_t;
};
template <>
struct UnitOfBytes<1> {
  using Type = uint8_t;
};

// kCount neighbours as the accesses see them: of 16 bytes each, or one of 8 or fewer.
template <class T, uint32_t kCount>
struct Neighbours {
  static constexpr uint32_t kBytes = sizeof(T) * kCount;
  using Unit = typename UnitOfBytes<kBytes>::Type;
  static constexpr uint32_t kUnits = kBytes / sizeof(Unit);
  static_assert(kUnits * sizeof(Unit) == kBytes);
  alignas(16) T values[kCount];
  __device__ __forceinline__ void read(const T* from) {
    Unit units[kUnits];
#pragma unroll
    for (uint32_t k = 0; k < kUnits; ++k) units[k] = reinterpret_cast<const Unit*>(from)[k];
    memcpy(values, units, kBytes);
  }
  __device__ __forceinline__ void write(T* to) const {
    Unit units[kUnits];
    memcpy(units, values, kBytes);
#pragma unroll
    for (uint32_t k = 0; k < kUnits; ++k) reinterpret_cast<Unit*>(to)[k] = units[k];
  }
};

// Elements of a type known at compile time.
template <class T>
struct Typed {
  using Element = T;
  static constexpr bool kFours = true;                             // whether four neighbours are one access
  static constexpr uint32_t kNeighbours = sizeof(T) <= 2 ? 8 : 4;  // of 16 bytes; 8 of FP8, 32 of f64
  T* data;
  bool aligned;  // as whole tensors are, which start on 256-byte boundaries; a slice may start anywhere
  __host__ __device__ explicit Typed(const Array& array)
      : data(static_cast<T*>(array.data)), aligned(reinterpret_cast<uintptr_t>(array.data) % 16 == 0) {}
  __device__ bool present() const { return data != nullptr; }
  template <class Wide>
  __device__ __forceinline__ Wide load(uint32_t i) const {
    return widen<Wide>(data[i]);
  }
  template <class Wide>
  __device__ __forceinline__ void store(uint32_t i, Wide x) const {
    narrow(x, data[i]);
  }
  template <uint32_t kCount>
  __device__ __forceinline__ Neighbours<T, kCount> neighbours(uint32_t i) const {
    Neighbours<T, kCount> all;
    if (aligned) {
      all.read(data + i);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) all.values[k] = data[i + k];
    }
    return all;
  }
  // Elements i .. i + kCount - 1, with i a multiple of kCount: one wide access.
  template <class Wide, uint32_t kCount>
  __device__ __forceinline__ void load_all(uint32_t i, Wide* x) const {
    const auto all = neighbours<kCount>(i);
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) x[k] = widen<Wide>(all.values[k]);
  }
  // The same for code that computes with them.
  template <class Wide>
  __device__ __forceinline__ Wide load_number(uint32_t i) const {
    return computed<Wide>(data[i]);
  }
  template <class Wide, uint32_t kCount>
  __device__ __forceinline__ void load_numbers(uint32_t i, Wide* x) const {
    const auto all = neighbours<kCount>(i);
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) x[k] = computed<Wide>(all.values[k]);
  }
  template <class Wide, uint32_t kCount>
  __device__ __forceinline__ void store_all(uint32_t i, const Wide* x) const {
    Neighbours<T, kCount> all;
    narrow_all<kCount>(x, all.values);
    if (aligned) {
      all.write(data + i);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) data[i + k] = all.values[k];
    }
  }
  template <class Wide>
  __device__ __forceinline__ void load4(uint32_t i, Wide* x) const {
    load_all<Wide, 4>(i, x);
  }
  template <class Wide>
  __device__ __forceinline__ void store4(uint32_t i, const Wide* x) const {
    store_all<Wide, 4>(i, x);
  }
};

// One element, or neighbours of an array that is aligned.
template <class Wide, uint32_t kCount, class Access>
__device__ __forceinline__ void load_some(const Access& x, uint32_t i, Wide* values) {
  if constexpr (kCount == 1) {
    values[0] = x.template load<Wide>(i);
  } else {
    __builtin_assume(x.aligned);
    x.template load_all<Wide, kCount>(i, values);
  }
}
template <class Wide, uint32_t kCount, class Access>
__device__ __forceinline__ void load_numbers_of(const Access& x, uint32_t i, Wide* values) {
  if constexpr (kCount == 1) {
    values[0] = x.template load_number<Wide>(i);
  } else {
    __builtin_assume(x.aligned);
    x.template load_numbers<Wide, kCount>(i, values);
  }
}
template <class Wide, uint32_t kCount, class Access>
__device__ __forceinline__ void store_some(const Access& x, uint32_t i, const Wide* values) {
  if constexpr (kCount == 1) {
    x.template store<Wide>(i, values[0]);
  } else {
    __builtin_assume(x.aligned);
    x.template store_all<Wide, kCount>(i, values);
  }
}

// Elements of a type known only at run time: for FP8 (except in casts) and for mixtures of dtypes, which would be too many
// to compile.
struct AnyTyped {
  static constexpr bool kFours = false;
  void* data;
  DType dtype;
  __host__ __device__ explicit AnyTyped(const Array& array) : data(array.data), dtype(array.dtype) {}
  __device__ bool present() const { return data != nullptr; }
  template <class Wide>
  __device__ __forceinline__ Wide load(uint32_t i) const {
    if (dtype == DType::f64) return widen<Wide>(static_cast<const double*>(data)[i]);
    if (dtype == DType::f16) return widen<Wide>(static_cast<const __half*>(data)[i]);
    if (dtype == DType::bf16) return widen<Wide>(static_cast<const __nv_bfloat16*>(data)[i]);
    if (dtype == DType::e4m3) return widen<Wide>(static_cast<const E4m3*>(data)[i]);
    if (dtype == DType::e5m2) return widen<Wide>(static_cast<const E5m2*>(data)[i]);
    if (dtype == DType::f32) return widen<Wide>(static_cast<const float*>(data)[i]);
    __trap();  // rows refuse these: device_code_reads()
    return Wide(0);
  }
  template <class Wide>
  __device__ __forceinline__ void store(uint32_t i, Wide x) const {
    if (dtype == DType::f64) return narrow(x, static_cast<double*>(data)[i]);
    if (dtype == DType::f16) return narrow(x, static_cast<__half*>(data)[i]);
    if (dtype == DType::bf16) return narrow(x, static_cast<__nv_bfloat16*>(data)[i]);
    if (dtype == DType::e4m3) return narrow(x, static_cast<E4m3*>(data)[i]);
    if (dtype == DType::e5m2) return narrow(x, static_cast<E5m2*>(data)[i]);
    if (dtype == DType::f32) return narrow(x, static_cast<float*>(data)[i]);
    __trap();
  }
};

template <class A, class W>
struct Choice {
  using Access = A;  // how elements are accessed
  using Wide = W;    // the arithmetic
};

// Calls f with the Choice for operands of these dtypes: typed if all are equal, fp64 arithmetic if one of them is f64.
// `others` are small operands (one value per channel), always accessed as AnyTyped; they affect only the arithmetic.
template <class F>
void with_access(std::initializer_list<DType> dtypes, std::initializer_list<DType> others, F&& f) {
  bool equal = true, wide = false;
  for (const DType dtype : dtypes) equal &= dtype == *dtypes.begin(), wide |= dtype == DType::f64;
  for (const DType dtype : others) wide |= dtype == DType::f64;
  if (wide) {
    if (equal && *dtypes.begin() == DType::f64) return f(Choice<Typed<double>, double>{});
    return f(Choice<AnyTyped, double>{});
  }
  if (!equal) return f(Choice<AnyTyped, float>{});
  if (*dtypes.begin() == DType::f32) return f(Choice<Typed<float>, float>{});
  if (*dtypes.begin() == DType::f16) return f(Choice<Typed<__half>, float>{});
  if (*dtypes.begin() == DType::bf16) return f(Choice<Typed<__nv_bfloat16>, float>{});
  if (*dtypes.begin() == DType::e4m3 || *dtypes.begin() == DType::e5m2) return f(Choice<AnyTyped, float>{});
  throw Error("device code cannot read " + std::string(name_of(*dtypes.begin())));
}
template <class F>
void with_access(std::initializer_list<DType> dtypes, F&& f) {
  with_access(dtypes, {}, std::forward<F>(f));
}

inline void launched(const char* what) { check(cudaGetLastError(), what); }
inline uint32_t blocks_for(uint32_t items, uint32_t per_block) { return items / per_block + (items % per_block != 0); }

}  // namespace halfmark::kernels::cuda
