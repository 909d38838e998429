// A second implementation of rounding, for inner loops: round_to for one format and nearest even, and add_to_odd. Uses
// integer selects instead of branches, so that compilers vectorise it. Forced inline, so that it is compiled for the
// instruction set of the calling loop.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "kernels/number/error.h"
#include "kernels/number/format.h"

namespace halfmark::kernels::reference {

#define HM_INLINE __attribute__((always_inline)) inline

inline constexpr int64_t kInfinityBits = 0x7FF0000000000000, kMagnitudeBits = 0x7FFFFFFFFFFFFFFF;

HM_INLINE int64_t pick(bool condition, int64_t yes, int64_t no) {
  const int64_t mask = -static_cast<int64_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// As add_to_odd (number/format.h).
HM_INLINE double add_odd(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);  // NaN when the sum is not finite
  const auto bits = std::bit_cast<int64_t>(sum), error_bits = std::bit_cast<int64_t>(error);
  const int64_t error_magnitude = error_bits & kMagnitudeBits;
  const int64_t inexact =
      -static_cast<int64_t>(error_magnitude > 0) & -static_cast<int64_t>(error_magnitude < kInfinityBits);
  // Away from zero if the error has the sign of the sum; only an even sum changes.
  const int64_t step = 1 - 2 * static_cast<int64_t>(static_cast<uint64_t>(error_bits ^ bits) >> 63);
  return std::bit_cast<double>(bits + (step & inexact & -(~bits & 1)));
}

// Relies on positive doubles comparing like their bits.
class Rounder {
 public:
  explicit Rounder(const Format& format) {
    HM_CHECK(format.has_nan() && !format.is_scale(),
             std::string(format.name) + " is only a storage format: sums need a format with zero and NaN");
    if (format.fraction_bits >= 52) return;  // fp64: the defaults change nothing
    drop_ = 52 - format.fraction_bits;
    half_ = (uint64_t{1} << (drop_ - 1)) - 1;
    odd_ = 1;
    normal_ = std::bit_cast<int64_t>(std::ldexp(1.0, format.min_exponent()));
    // Adding and subtracting 1.5 2^52 times the last place rounds to that place, to nearest even.
    magic_ = std::ldexp(1.5, 52 + format.min_subnormal_exponent());
    largest_ = std::bit_cast<int64_t>(format.max_finite());
    zero_ = format.has_negative_zero() ? -0.0 : 0.0;
    overflow_ = std::bit_cast<int64_t>(format.has_infinity() ? std::numeric_limits<double>::infinity()
                                                             : std::numeric_limits<double>::quiet_NaN());
  }

  HM_INLINE double operator()(double x) const {
    const auto raw = std::bit_cast<int64_t>(x);
    const int64_t magnitude = raw & kMagnitudeBits, sign = raw ^ magnitude;
    const auto small = std::bit_cast<int64_t>((std::bit_cast<double>(magnitude) + magic_) - magic_);
    const auto unsigned_magnitude = static_cast<uint64_t>(magnitude);
    const auto rounded = static_cast<int64_t>((unsigned_magnitude + half_ + ((unsigned_magnitude >> drop_) & odd_)) &
                                              ~((uint64_t{1} << drop_) - 1));
    const int64_t large = pick(rounded > largest_, overflow_, rounded);
    const int64_t result = pick(magnitude > kInfinityBits, magnitude, pick(magnitude < normal_, small, large));
    return std::bit_cast<double>(result | sign) + zero_;
  }

 private:
  int drop_ = 0;
  uint64_t half_ = 0, odd_ = 0;
  int64_t normal_ = 0, largest_ = kInfinityBits, overflow_ = kInfinityBits;
  double magic_ = 0;
  double zero_ = -0.0;  // x + -0 is x; x + 0 is x except that -0 becomes 0
};

}  // namespace halfmark::kernels::reference
