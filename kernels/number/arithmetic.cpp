// Everything is computed in fp64 and then rounded once to the format. fp64 keeps all that this rounding needs:
// - sums and products of formats of at most 16 bits are exact or rounded to odd (format.h);
// - quotients and square roots have enough bits, 53 >= 2 p + 2 (Figueroa 1995): they reach or cross a p-bit number or a
//   tie only if the exact result is that number or tie.
// No intermediate is subnormal in fp64: with 8 exponent bits the smallest is 2^-266.
#include "kernels/number/arithmetic.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

constexpr std::array kOperations{
    OperationRow{ScalarOperation::add, "add", 2},        OperationRow{ScalarOperation::sub, "sub", 2},
    OperationRow{ScalarOperation::mul, "mul", 2},        OperationRow{ScalarOperation::div, "div", 2},
    OperationRow{ScalarOperation::mul_add, "mulAdd", 3}, OperationRow{ScalarOperation::sqrt, "sqrt", 1},
};

struct Operand {
  double value;
  bool signalling;
};

Operand operand(const Format& format, uint64_t code) {
  const double value = decode_format(format, code);
  return {value, format.has_infinity() && std::isnan(value) && !((code >> (format.fraction_bits - 1)) & 1)};
}

Result default_nan(const Format& format, unsigned flags) {
  return {encode_format(format, std::numeric_limits<double>::quiet_NaN()), flags};
}

// x is finite and below the normal numbers. Does it stay there when it is rounded with an unbounded exponent?
bool is_tiny(const Format& format, double x, Rounding rounding, uint64_t noise) {
  int exponent = 0;
  const double significand = 2 * std::frexp(std::fabs(x), &exponent);  // in [1, 2), of x = significand 2^(exponent - 1)
  // Just below the smallest normal number, x may round up to it. [1, 2] is normal in every format.
  return exponent < format.min_exponent() || round_to(format, significand, rounding, nullptr, noise) < 2;
}

// Rounds a value, which is exact or exact enough for this format,
// to its code and flags. Infinities follow the overflow rule.
Result rounded(const Format& format, double x, Rounding rounding, Overflow overflow, uint64_t noise) {
  RoundEvents events;
  const uint64_t code = encode_format(format, x, rounding, &events, noise, overflow);
  unsigned flags = 0;
  if (events.inexact) flags |= kInexact;
  if (events.overflow) flags |= kOverflow;
  if (events.inexact && std::fabs(x) < power_of_two(format.min_exponent()) && is_tiny(format, x, rounding, noise))
    flags |= kUnderflow;
  if (format.is_scale() && x == 0) flags |= kInexact | kUnderflow;
  if (format.is_scale() && std::signbit(x)) flags |= kInexact;
  return {code, flags};
}

double odd_product_and_sum(double x, double y, double z) {
  const double product = x * y;
  return std::isfinite(product) && std::isfinite(z) ? add_to_odd(product, z) : product + z;
}

}  // namespace

std::span<const OperationRow> operations() { return kOperations; }

const OperationRow& operation_named(std::string_view name) { return named("operation", kOperations, name); }

Result compute(ScalarOperation operation, const Format& format, uint64_t x_code, uint64_t y_code, uint64_t z_code,
               Rounding rounding) {
  HM_CHECK(format.bits() <= 16 && format.exponent_bits <= 8 && !format.is_scale(),
           "arithmetic on codes takes signed formats of at most 16 bits, not " + std::string(format.name));
  const int operands = kOperations[static_cast<size_t>(operation)].operands;
  const Operand none{0, false};
  const Operand a = operand(format, x_code), b = operands > 1 ? operand(format, y_code) : none,
                c = operands > 2 ? operand(format, z_code) : none;
  const double x = a.value, y = b.value, z = c.value;
  const bool infinity_times_zero = (std::isinf(x) && y == 0) || (x == 0 && std::isinf(y));
  if (a.signalling || b.signalling || c.signalling) return default_nan(format, kInvalid);
  if (operation == ScalarOperation::mul_add && infinity_times_zero) return default_nan(format, kInvalid);
  if (std::isnan(x) || std::isnan(y) || std::isnan(z)) return default_nan(format, 0);

  double exact = 0;
  unsigned flags = 0;
  switch (operation) {
    case ScalarOperation::add:
      exact = add_to_odd(x, y);
      break;
    case ScalarOperation::sub:
      exact = add_to_odd(x, -y);
      break;
    case ScalarOperation::mul:
      exact = x * y;
      break;
    case ScalarOperation::mul_add:
      exact = odd_product_and_sum(x, y, z);
      break;
    case ScalarOperation::div:
      exact = x / y;
      if (y == 0 && x != 0 && !std::isinf(x)) flags = kDivideByZero;
      break;
    case ScalarOperation::sqrt:
      exact = std::sqrt(x);
      break;
  }
  if (std::isnan(exact)) return default_nan(format, kInvalid);
  const Result result = rounded(format, exact, rounding, Overflow::format_default, 0);
  return {result.code, result.flags | flags};
}

namespace {

Result convert_value(const Operand& x, const Format& to, Rounding rounding, Overflow overflow, uint64_t noise) {
  if (std::isnan(x.value)) return default_nan(to, x.signalling || !to.has_nan() ? kInvalid : 0u);
  Result result = rounded(to, x.value, rounding, overflow, noise);
  if (std::isinf(x.value) && !std::isinf(decode_format(to, result.code))) result.flags |= kOverflow | kInexact;
  return result;
}

// To an integer: first rounded to a whole number, then clamped to the integer's range.
Result convert_to_integer(double x, DType to, Rounding rounding, uint64_t noise) {
  if (std::isnan(x)) return {0, kInvalid};
  double whole = std::trunc(x);
  const double lost = std::fabs(x - whole);  // exact; NaN for an infinity, for which no comparison below holds
  bool up = false;
  switch (rounding) {
    case Rounding::near_even:
      up = lost > 0.5 || (lost == 0.5 && std::fmod(whole, 2) != 0);
      break;
    case Rounding::near_away:
      up = lost >= 0.5;
      break;
    case Rounding::stochastic:  // compares 64 random bits with the discarded fraction, as round_to does
      up = std::ldexp(static_cast<double>(noise >> 11), -53) < lost;
      break;
    case Rounding::toward_zero:
      break;
  }
  if (up) whole += std::copysign(1.0, x);
  const uint64_t code = encode(to, whole);  // clamps
  if (decode(to, code) != whole) return {code, kInvalid};
  return {code, whole != x ? kInexact : 0u};
}

}  // namespace

Result convert_code(const Format& from, uint64_t code, const Format& to, Rounding rounding, Overflow overflow,
                    uint64_t noise) {
  return convert_value(operand(from, code), to, rounding, overflow, noise);
}

Result convert_code(DType from, uint64_t code, DType to, Rounding rounding, Overflow overflow, uint64_t noise) {
  const Operand x = is_floating(from) ? operand(format_of(from), code) : Operand{decode(from, code), false};
  if (!is_floating(to)) return convert_to_integer(x.value, to, rounding, noise);
  return convert_value(x, format_of(to), rounding, overflow, noise);
}

}  // namespace halfmark::kernels
