// Rounding by integer arithmetic on the significand of the fp64
// argument, so that it is exact for every format and mode.
#include "kernels/number/format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

constexpr std::array kRoundings{Rounding::near_even, Rounding::toward_zero, Rounding::near_away, Rounding::stochastic};
constexpr std::array kOverflows{Overflow::infinity, Overflow::nan, Overflow::saturate};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr int kDoubleFraction = 52;
constexpr uint64_t kHidden = uint64_t{1} << kDoubleFraction;

// significand >> drop, rounded. `drop` may be any positive number of bits.
uint64_t shift_right_rounded(uint64_t significand, int drop, Rounding rounding, uint64_t noise) {
  if (drop > 63) {  // less than a quarter of the last place
    if (rounding != Rounding::stochastic || drop > 116) return 0;
    // P(up) = significand / 2^drop: compares it with the top 64 bits of a uniform number.
    return noise < (drop - 64 >= 53 ? 0 : significand >> (drop - 64)) ? 1 : 0;
  }
  const uint64_t kept = significand >> drop;
  const uint64_t lost = significand & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  switch (rounding) {
    case Rounding::toward_zero:
      return kept;
    case Rounding::near_away:
      return kept + (lost >= half);
    case Rounding::near_even:
      return kept + (lost > half || (lost == half && (kept & 1)));
    case Rounding::stochastic:
      return kept + ((noise >> (64 - drop)) < lost);
  }
  return kept;
}

// The result for a magnitude beyond the largest number.
double beyond_largest(const Format& format, Overflow overflow) {
  const bool wants_nan = overflow == Overflow::nan || !format.has_infinity();
  if (overflow == Overflow::saturate || (wants_nan && !format.has_nan())) return format.max_finite();
  return wants_nan ? kNaN : kInfinity;
}

// Zeros, infinities and NaNs.
double round_special(const Format& format, double x, Overflow overflow) {
  if (std::isnan(x)) return format.has_nan() ? x : format.max_finite();
  if (x == 0) return format.with_sign_of(format.is_scale() ? power_of_two(format.min_exponent()) : 0, x);
  if (format.has_infinity() && overflow != Overflow::saturate) return x;
  return format.with_sign_of(beyond_largest(format, overflow), x);
}

}  // namespace

double Format::unit_roundoff() const { return std::ldexp(1.0, -(fraction_bits + 1)); }

const Format& format_named(std::string_view name) { return named("format", kFormats, name); }

std::string_view name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::near_even:
      return "near_even";
    case Rounding::toward_zero:
      return "toward_zero";
    case Rounding::near_away:
      return "near_away";
    case Rounding::stochastic:
      return "stochastic";
  }
  return "?";
}

std::string_view name_of(Overflow overflow) {
  switch (overflow) {
    case Overflow::format_default:
      return "format_default";
    case Overflow::infinity:
      return "infinity";
    case Overflow::nan:
      return "nan";
    case Overflow::saturate:
      return "saturate";
  }
  return "?";
}

Rounding rounding_named(std::string_view name) {
  return named("rounding", kRoundings, name, [](Rounding rounding) { return name_of(rounding); });
}
Overflow overflow_named(std::string_view name) {
  return named("overflow rule", kOverflows, name, [](Overflow overflow) { return name_of(overflow); });
}

void require_possible(const Format& format, Overflow overflow) {
  const bool no_infinity = overflow == Overflow::infinity && !format.has_infinity();
  if (!no_infinity && (overflow != Overflow::nan || format.has_nan())) return;
  throw Error("overflow rule '" + std::string(name_of(overflow)) + "': " + std::string(format.name) + " has no " +
              (no_infinity ? "infinity" : "NaN") + "; possible: " + (format.has_nan() ? "nan, saturate" : "saturate"));
}

double round_to(const Format& format, double x, Rounding rounding, RoundEvents* events, uint64_t noise,
                Overflow overflow_rule) {
  if (events) ++events->values;
  if (x == 0 || !std::isfinite(x)) return round_special(format, x, overflow_rule);
  if (format.fraction_bits >= kDoubleFraction) return x;

  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int field = static_cast<int>(bits >> kDoubleFraction) & 0x7ff;
  uint64_t significand = bits & (kHidden - 1);
  int exponent = 1 - 1023;  // exponent of the leading bit, as if it were set
  if (field) significand |= kHidden, exponent = field - 1023;

  // The last place kept is 2^(max(exponent, emin) - fraction_bits).
  const int last_place = std::max(exponent, format.min_exponent()) - format.fraction_bits;
  const int drop = last_place - (exponent - kDoubleFraction);
  const uint64_t rounded = shift_right_rounded(significand, drop, rounding, noise);
  double result = static_cast<double>(rounded) * power_of_two(last_place);

  if (result == 0 && format.is_scale()) result = power_of_two(format.min_exponent());

  const bool overflow = result > format.max_finite();
  if (overflow) {
    const bool stays =
        rounding == Rounding::toward_zero || (rounding == Rounding::stochastic && std::fabs(x) <= format.max_finite());
    result = beyond_largest(format, stays ? Overflow::saturate : overflow_rule);
  }
  if (events) {
    events->inexact += std::isnan(result) || result != std::fabs(x);
    events->overflow += overflow;
    events->underflow += result == 0;
    events->subnormal += result != 0 && result < power_of_two(format.min_exponent());
  }
  return format.with_sign_of(result, x);
}

double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  // TwoSum (Knuth): the error of the addition, exactly.
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1)) return sum;
  // Inexact and even: the odd neighbour is on the side of the error.
  const bool away = (error > 0) == (sum > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

double fused_multiply_add(const Format& format, double a, double b, double c, Rounding rounding) {
  if (format == kFp64) return std::fma(a, b, c);
  const double product = a * b;
  if (!std::isfinite(product) || !std::isfinite(c)) return round_to(format, product + c, rounding);
  return round_to(format, add_to_odd(product, c), rounding);
}

}  // namespace halfmark::kernels
