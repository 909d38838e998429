// Rounding of an exact value to a code, in every rounding mode of cvt.
#pragma once

#include <cstdint>

namespace halfmark::kernels::software_gpu {

enum class RoundMode : uint8_t { near_even, toward_zero, down, up, near_away };

struct FloatLayout {
  int exponent_bits, fraction_bits;
  bool has_infinity;  // e4m3 and e2m1 have none
  bool has_nan;       // e2m1 has none
  constexpr int bits() const { return 1 + exponent_bits + fraction_bits; }
};
inline constexpr FloatLayout kF64{11, 52, true, true}, kF32{8, 23, true, true}, kF16{5, 10, true, true},
    kBF16{8, 7, true, true}, kTF32{8, 10, true, true}, kE5M2{5, 2, true, true}, kE4M3{4, 3, false, true},
    kE2M1{2, 1, false, false};

// `x` has at most 64 significant bits, so every integer and f64 is exact. `saturate_finite`: too large a magnitude, or
// an infinity, becomes the largest finite number; in e4m3 that is always so. A NaN becomes the code with exponent and
// fraction all ones and a positive sign (in e2m1 the largest number); in f64 the host's quiet NaN.
uint64_t round_to_code(long double x, const FloatLayout& to, RoundMode mode, bool saturate_finite);

long double value_of_code(uint64_t code, const FloatLayout& from);

// x rounded to an integer. A NaN stays one.
long double round_to_integer(long double x, RoundMode mode);

}  // namespace halfmark::kernels::software_gpu
