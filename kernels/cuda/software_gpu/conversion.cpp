#include "kernels/cuda/software_gpu/conversion.h"

#include <cmath>
#include <limits>

namespace halfmark::kernels::software_gpu {
namespace {

bool rounds_up(RoundMode mode, long double rest, bool odd, bool negative) {
  switch (mode) {
    case RoundMode::near_even:
      return rest > 0.5L || (rest == 0.5L && odd);
    case RoundMode::near_away:
      return rest >= 0.5L;
    case RoundMode::toward_zero:
      return false;
    case RoundMode::down:
      return negative && rest > 0;
    case RoundMode::up:
      return !negative && rest > 0;
  }
  return false;
}

}  // namespace

uint64_t round_to_code(long double x, const FloatLayout& to, RoundMode mode, bool saturate_finite) {
  const bool negative = std::signbit(x);
  const uint64_t sign = negative ? uint64_t{1} << (to.bits() - 1) : 0;
  const uint64_t ones = (uint64_t{1} << (to.bits() - 1)) - 1;
  const uint64_t infinity = ones >> to.fraction_bits << to.fraction_bits;
  const uint64_t largest = to.has_infinity ? infinity - 1 : to.has_nan ? ones - 1 : ones;
  if (std::isnan(x)) return to.exponent_bits == 11 ? infinity | uint64_t{1} << 51 : ones;
  const bool keeps_finite = saturate_finite || !to.has_infinity;
  if (std::isinf(x)) return sign | (keeps_finite ? largest : infinity);
  if (x == 0) return sign;
  const long double magnitude = std::fabs(x);
  const int lowest = 2 - (1 << (to.exponent_bits - 1));  // exponent of the smallest normal number
  int exponent = std::ilogb(magnitude);
  if (exponent < lowest) exponent = lowest;
  const long double scaled = std::scalbn(magnitude, to.fraction_bits - exponent);
  const long double whole = std::floor(scaled);
  auto significand = static_cast<uint64_t>(whole);
  if (rounds_up(mode, scaled - whole, significand & 1, negative)) ++significand;
  const auto steps = static_cast<uint64_t>(exponent - lowest);
  const uint64_t code = exponent - lowest > (2 << to.exponent_bits) ? ones : (steps << to.fraction_bits) + significand;
  if (code <= largest) return sign | code;
  const bool away = mode == RoundMode::near_even || mode == RoundMode::near_away ||
                    (mode == RoundMode::down && negative) || (mode == RoundMode::up && !negative);
  return sign | (keeps_finite || !away ? largest : infinity);
}

long double value_of_code(uint64_t code, const FloatLayout& from) {
  const uint64_t ones = (uint64_t{1} << (from.bits() - 1)) - 1;
  const uint64_t magnitude = code & ones, infinity = ones >> from.fraction_bits << from.fraction_bits;
  const bool negative = code >> (from.bits() - 1) & 1;
  long double value = 0;
  if (from.has_infinity && magnitude >= infinity)
    value = magnitude == infinity ? std::numeric_limits<long double>::infinity()
                                  : std::numeric_limits<long double>::quiet_NaN();
  else if (from.has_nan && !from.has_infinity && magnitude == ones)
    value = std::numeric_limits<long double>::quiet_NaN();
  else {
    const auto field = static_cast<int>(magnitude >> from.fraction_bits);
    const uint64_t fraction = magnitude & ((uint64_t{1} << from.fraction_bits) - 1);
    const int bias = (1 << (from.exponent_bits - 1)) - 1;
    const uint64_t significand = field ? fraction | uint64_t{1} << from.fraction_bits : fraction;
    value = std::scalbn(static_cast<long double>(significand), (field ? field : 1) - bias - from.fraction_bits);
  }
  return negative ? -value : value;
}

long double round_to_integer(long double x, RoundMode mode) {
  if (!std::isfinite(x)) return x;
  const long double magnitude = std::fabs(x), whole = std::floor(magnitude);
  const bool odd = std::fmod(whole, 2.0L) != 0;
  const long double result = whole + (rounds_up(mode, magnitude - whole, odd, std::signbit(x)) ? 1 : 0);
  return std::copysign(result, x);
}

}  // namespace halfmark::kernels::software_gpu
