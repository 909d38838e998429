// round_to for one format and nearest even, made small enough for inner loops; and add_to_odd without branches.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/number/format.h"

namespace halfmark::reference {

// As add_to_odd (number/format.h), inline and with selects instead of branches.
inline double add_odd(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  // A non-finite sum has an error of NaN, which is neither above nor below zero.
  const bool inexact = error > 0 || error < 0;
  const uint64_t step = (error > 0) == (sum > 0) ? uint64_t{1} : ~uint64_t{0};
  return std::bit_cast<double>(inexact && !(bits & 1) ? bits + step : bits);
}

class Rounder {
 public:
  explicit Rounder(const Format& format)
      : exact_(format.fraction_bits >= 52),
        drop_(exact_ ? 1 : 52 - format.fraction_bits),
        normal_(std::ldexp(1.0, format.min_exponent())),
        // Adding and subtracting 1.5 2^52 times the last place rounds there, to nearest even.
        magic_(exact_ ? 0 : std::ldexp(1.5, 52 + format.min_subnormal_exponent())),
        largest_(format.max_finite()),
        overflow_(format.specials == Specials::ieee ? std::numeric_limits<double>::infinity()
                                                    : std::numeric_limits<double>::quiet_NaN()) {}

  double operator()(double x) const {
    if (exact_) return x;
    const double magnitude = std::fabs(x);
    if (magnitude < normal_) return std::copysign((magnitude + magic_) - magic_, x);
    const auto bits = std::bit_cast<uint64_t>(magnitude);
    const uint64_t half = (uint64_t{1} << (drop_ - 1)) - 1;
    const uint64_t rounded = (bits + half + ((bits >> drop_) & 1)) >> drop_ << drop_;
    const auto result = std::bit_cast<double>(rounded);
    if (std::isnan(x)) return x;  // rounding a NaN's bits may even make a zero of it
    return std::copysign(result <= largest_ ? result : overflow_, x);
  }

 private:
  bool exact_;
  int drop_;
  double normal_, magic_, largest_, overflow_;
};

}  // namespace halfmark::reference
