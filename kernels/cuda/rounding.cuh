// Rounding to a dtype in any mode, by integer arithmetic on the significand: the bits of round_to() and encode().
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/number/format.h"

namespace halfmark::kernels::cuda {

struct RoundTarget {
  int exponent_bits, fraction_bits;
  bool has_infinity;  // else the codes of all ones are NaN
};

__host__ __device__ constexpr RoundTarget round_target(DType dtype) {
  if (dtype == DType::f64) return {11, 52, true};
  if (dtype == DType::f16) return {5, 10, true};
  if (dtype == DType::bf16) return {8, 7, true};
  if (dtype == DType::e4m3) return {4, 3, false};
  if (dtype == DType::e5m2) return {5, 2, true};
  return {8, 23, true};
}
constexpr bool is_round_target_of(const Format& format, DType dtype) {
  const RoundTarget target = round_target(dtype);
  return target.exponent_bits == format.exponent_bits && target.fraction_bits == format.fraction_bits &&
         target.has_infinity == format.has_infinity();
}
static_assert(is_round_target_of(kFp64, DType::f64) && is_round_target_of(kFp32, DType::f32) &&
              is_round_target_of(kFp16, DType::f16) && is_round_target_of(kBf16, DType::bf16) &&
              is_round_target_of(kE4m3, DType::e4m3) && is_round_target_of(kE5m2, DType::e5m2));

// significand >> drop
__device__ inline uint64_t shift_rounded(uint64_t significand, int drop, Rounding rounding, uint64_t noise) {
  if (drop > 63) {  // less than a quarter of the last place
    if (rounding != Rounding::stochastic || drop > 116) return 0;
    return noise < (significand >> (drop - 64)) ? 1 : 0;
  }
  const uint64_t kept = significand >> drop, lost = significand & ((uint64_t{1} << drop) - 1),
                 half = uint64_t{1} << (drop - 1);
  if (rounding == Rounding::toward_zero) return kept;
  if (rounding == Rounding::near_away) return kept + (lost >= half);
  if (rounding == Rounding::stochastic) return kept + ((noise >> (64 - drop)) < lost);
  return kept + (lost > half || (lost == half && (kept & 1)));
}

// The code of x in the dtype of the target, which is not f64. `noise`: of stochastic rounding.
__device__ inline uint32_t rounded_code(double x, const RoundTarget& target, Rounding rounding, uint64_t noise) {
  const int fraction = target.fraction_bits;
  const uint32_t ones = (1u << (target.exponent_bits + fraction)) - 1, infinity = ones >> fraction << fraction;
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
  const uint32_t sign = bits >> 63 ? ones + 1 : 0;
  const uint32_t overflowed = target.has_infinity ? infinity : ones;
  if (isnan(x)) return sign | (target.has_infinity ? infinity | 1u << (fraction - 1) : ones);
  if (isinf(x)) return sign | overflowed;
  if (x == 0) return sign;
  const int field = static_cast<int>(bits >> 52) & 0x7ff;
  uint64_t significand = bits & ((uint64_t{1} << 52) - 1);
  int exponent = -1022;
  if (field) significand |= uint64_t{1} << 52, exponent = field - 1023;
  const int least = 2 - (1 << (target.exponent_bits - 1)), kept = exponent > least ? exponent : least;
  const uint64_t rounded = shift_rounded(significand, kept - fraction - (exponent - 52), rounding, noise);
  // A carry into the next power of two is one into the exponent.
  const uint64_t code = (static_cast<uint64_t>(kept - least) << fraction) + rounded, largest = overflowed - 1;
  if (code <= largest) return sign | static_cast<uint32_t>(code);
  return sign | static_cast<uint32_t>(rounding == Rounding::toward_zero ? largest : overflowed);
}

__device__ inline void store_code_of(void* data, DType dtype, uint32_t i, uint32_t code) {
  if (dtype == DType::f32)
    static_cast<float*>(data)[i] = __uint_as_float(code);  // as load() reads it
  else if (dtype == DType::f16 || dtype == DType::bf16)
    static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(code);
  else if (dtype == DType::e4m3 || dtype == DType::e5m2)
    static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(code);
  else
    __trap();
}

}  // namespace halfmark::kernels::cuda
