// exp of numbers that are not positive, as in a softmax, without a branch, so that the compiler uses vectors.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace halfmark::kernels::host {

// Within 2 units in the last place (4 of a subnormal result); 1 for 0, 0 below -104, NaN for NaN. x = n ln 2 + r with
// |r| <= ln 2 / 2; exp r is its Taylor polynomial of degree 7, whose remainder is below 2^-27; ln 2 is taken in two parts,
// of which the first has 9 bits, so that n times it is exact (Cody and Waite, Software Manual, 1980).
inline float exp_of_nonpositive(float x) {
  const float bounded = x < -104.0F ? -104.0F : x;
  constexpr float kToInteger = 12582912.0F;  // 1.5 2^23: adding it rounds to a whole number
  const float n = (bounded * 1.4426950408889634F + kToInteger) - kToInteger;
  const float r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720, p = p * r + 1.0F / 120, p = p * r + 1.0F / 24, p = p * r + 1.0F / 6, p = p * r + 0.5F;
  p = p * r * r + r + 1.0F;
  // 2^n in two factors, because n may be below the exponents of normal numbers.
  const auto whole = static_cast<int32_t>(n);
  const int32_t half = whole / 2;
  const auto power = [](int32_t exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); };
  return p * power(half) * power(whole - half);
}
inline double exp_of_nonpositive(double x) { return std::exp(x); }

}  // namespace halfmark::kernels::host
