// Arithmetic on codes against a model in 128-bit integers that shares nothing with it except the table of formats.
#include "kernels/number/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

// The model: (-1)^negative * magnitude * 2^exponent; if `more`, the exact magnitude is larger by less than 1.
struct Exact {
  bool negative;
  Wide magnitude;
  int exponent;
  bool more = false;
};

enum class Kind { finite, infinite, quiet, signalling };

struct Code {
  Kind kind;
  Exact value;
};

// In formats with unsigned zero, NaN has the code of -0.
bool zero_is_unsigned(const Format& format) { return format.specials.nan == NanCodes::negative_zero; }
bool is_ieee(const Format& format) { return format.specials.nan == NanCodes::top_exponent; }
bool has_one_nan_on_top(const Format& format) { return format.specials.nan == NanCodes::all_ones; }

int bias_of(const Format& format) { return (1 << (format.exponent_bits - 1)) - 1 + format.specials.more_bias; }

Code take_apart(const Format& format, uint64_t code) {
  const uint64_t fraction = code % (uint64_t{1} << format.fraction_bits);
  code >>= format.fraction_bits;
  const uint64_t field = code % (uint64_t{1} << format.exponent_bits);
  const bool negative = (code >> format.exponent_bits) & 1, top = field + 1 == uint64_t{1} << format.exponent_bits;
  if (is_ieee(format) && top) {
    if (!fraction) return {Kind::infinite, {negative, 0, 0}};
    return {fraction >> (format.fraction_bits - 1) ? Kind::quiet : Kind::signalling, {negative, 0, 0}};
  }
  if (has_one_nan_on_top(format) && top && fraction + 1 == uint64_t{1} << format.fraction_bits)
    return {Kind::quiet, {negative, 0, 0}};
  if (zero_is_unsigned(format) && negative && !field && !fraction) return {Kind::quiet, {negative, 0, 0}};
  const int exponent = (field ? static_cast<int>(field) : 1) - bias_of(format) - format.fraction_bits;
  return {Kind::finite, {negative, fraction + (field ? uint64_t{1} << format.fraction_bits : 0), exponent}};
}

uint64_t with_sign(const Format& format, bool negative, uint64_t code) {
  if (zero_is_unsigned(format) && code == 0) return 0;
  return code | (negative ? uint64_t{1} << (format.exponent_bits + format.fraction_bits) : 0);
}
uint64_t infinity_code(const Format& format) {
  return ((uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits;
}
uint64_t largest_code(const Format& format) {
  const uint64_t all = (uint64_t{1} << (format.exponent_bits + format.fraction_bits)) - 1;
  if (is_ieee(format)) return infinity_code(format) - 1;
  return has_one_nan_on_top(format) ? all - 1 : all;
}
uint64_t nan_code(const Format& format) {
  if (format.specials.nan == NanCodes::none) return largest_code(format);
  if (has_one_nan_on_top(format)) return largest_code(format) + 1;
  if (zero_is_unsigned(format)) return uint64_t{1} << (format.exponent_bits + format.fraction_bits);
  return infinity_code(format) | uint64_t{1} << (format.fraction_bits - 1);
}

int top_bit(Wide x) {
  int top = -1;
  for (; x; x >>= 1) ++top;
  return top;
}

struct Cut {
  Wide kept;
  bool inexact;
};
// The magnitude in units of 2^place.
Cut cut(const Exact& x, int place, Rounding rounding) {
  const int drop = place - x.exponent;
  if (drop <= 0) return {x.magnitude << -drop, x.more};
  if (drop > 126) return {0, true};  // the models below never come near half a unit there
  const Wide kept = x.magnitude >> drop, lost = x.magnitude - (kept << drop), half = Wide{1} << (drop - 1);
  bool up = false;
  if (rounding == Rounding::near_even) up = lost > half || (lost == half && (x.more || (kept & 1)));
  if (rounding == Rounding::near_away) up = lost >= half;
  return {kept + up, lost || x.more};
}

Result round_model(const Format& format, const Exact& x, Rounding rounding,
                   Overflow overflow = Overflow::format_default) {
  if (!x.magnitude && !x.more) return {with_sign(format, x.negative, 0), 0};
  const int p = format.fraction_bits + 1, emin = 1 - bias_of(format), leading = top_bit(x.magnitude) + x.exponent;
  const int place = std::max(leading, emin) - (p - 1);
  const Cut result = cut(x, place, rounding);
  unsigned flags = result.inexact ? kInexact : 0u;
  // Tininess is detected after rounding, with an unbounded exponent.
  const int free_place = leading - (p - 1);
  const Cut unbounded = cut(x, free_place, rounding);
  const bool tiny = top_bit(unbounded.kept) + free_place < emin;
  if (tiny && result.inexact) flags |= kUnderflow;
  // Codes number the values from zero upwards, so the place of the first normal exponent counts as field 1.
  uint64_t code = static_cast<uint64_t>(result.kept);
  if (code >> format.fraction_bits) code += static_cast<uint64_t>(place - (emin - (p - 1))) << format.fraction_bits;
  if (code > largest_code(format)) {
    flags |= kOverflow | kInexact;
    const bool nan = overflow == Overflow::nan || !is_ieee(format);
    code = rounding == Rounding::toward_zero || overflow == Overflow::saturate ? largest_code(format)
           : nan                                                               ? nan_code(format)
                                                                               : infinity_code(format);
  }
  return {with_sign(format, x.negative, code), flags};
}

// Aligns both. If they are so far apart that the smaller one only matters for not being zero, it becomes `more`.
Exact sum_model(Exact a, Exact b) {
  if (!a.magnitude && !b.magnitude) return {a.negative && b.negative, 0, 0};
  if (!a.magnitude) return b;
  if (!b.magnitude) return a;
  if (a.exponent < b.exponent) std::swap(a, b);
  if (const int gap = a.exponent - b.exponent; gap <= 90) {
    a.magnitude <<= gap, a.exponent = b.exponent;
    if (a.negative == b.negative) return {a.negative, a.magnitude + b.magnitude, a.exponent};
    if (a.magnitude == b.magnitude) return {false, 0, 0};
    return a.magnitude > b.magnitude ? Exact{a.negative, a.magnitude - b.magnitude, a.exponent}
                                     : Exact{b.negative, b.magnitude - a.magnitude, a.exponent};
  }
  a.magnitude <<= 90, a.exponent -= 90;  // b is below 2^24 units of it, and 2^80 is a place of the result
  return {a.negative, a.magnitude - (a.negative != b.negative ? 1 : 0), a.exponent, true};
}

Exact product_model(const Exact& a, const Exact& b) {
  return {a.negative != b.negative, a.magnitude * b.magnitude, a.exponent + b.exponent};
}

Exact quotient_model(const Exact& a, const Exact& b) {
  const Wide dividend = a.magnitude << 100;
  return {a.negative != b.negative, dividend / b.magnitude, a.exponent - 100 - b.exponent, dividend % b.magnitude != 0};
}

Exact root_model(Exact a) {
  a.magnitude <<= 90, a.exponent -= 90;
  if (a.exponent & 1) a.magnitude <<= 1, --a.exponent;
  Wide low = 0, high = Wide{1} << 62;
  while (high - low > 1) {
    const Wide middle = (low + high) / 2;
    (middle * middle <= a.magnitude ? low : high) = middle;
  }
  return {false, low, a.exponent / 2, low * low != a.magnitude};
}

Result model(ScalarOperation operation, const Format& format, uint64_t x, uint64_t y, uint64_t z, Rounding rounding) {
  const int operands = operation == ScalarOperation::sqrt ? 1 : operation == ScalarOperation::mul_add ? 3 : 2;
  Code a = take_apart(format, x), b = take_apart(format, operands > 1 ? y : 0),
       c = take_apart(format, operands > 2 ? z : 0);
  const Result invalid{nan_code(format), kInvalid}, quiet{nan_code(format), 0};
  const auto infinity = [&](bool negative) {  // or its replacement if the format has none
    return Result{with_sign(format, negative, is_ieee(format) ? infinity_code(format) : nan_code(format)), 0};
  };
  const auto is = [](const Code& code, Kind kind) { return code.kind == kind; };
  const auto zero = [&](const Code& code) { return is(code, Kind::finite) && !code.value.magnitude; };
  for (const Code* code : {&a, &b, &c})
    if (is(*code, Kind::signalling)) return invalid;
  const bool bad_product = (is(a, Kind::infinite) && zero(b)) || (zero(a) && is(b, Kind::infinite));
  if (operation == ScalarOperation::mul_add && bad_product) return invalid;
  for (const Code* code : {&a, &b, &c})
    if (is(*code, Kind::quiet)) return quiet;
  const bool product_sign = a.value.negative != b.value.negative;
  const auto finish = [&](const Exact& exact) { return round_model(format, exact, rounding); };
  switch (operation) {
    case ScalarOperation::sub:
      b.value.negative = !b.value.negative;
      [[fallthrough]];
    case ScalarOperation::add:
      if (is(a, Kind::infinite))
        return is(b, Kind::infinite) && a.value.negative != b.value.negative ? invalid : infinity(a.value.negative);
      if (is(b, Kind::infinite)) return infinity(b.value.negative);
      return finish(sum_model(a.value, b.value));
    case ScalarOperation::mul:
      if (bad_product) return invalid;
      if (is(a, Kind::infinite) || is(b, Kind::infinite)) return infinity(product_sign);
      return finish(product_model(a.value, b.value));
    case ScalarOperation::mul_add:
      if (is(a, Kind::infinite) || is(b, Kind::infinite))
        return is(c, Kind::infinite) && c.value.negative != product_sign ? invalid : infinity(product_sign);
      if (is(c, Kind::infinite)) return infinity(c.value.negative);
      return finish(sum_model(product_model(a.value, b.value), c.value));
    case ScalarOperation::div:
      if ((is(a, Kind::infinite) && is(b, Kind::infinite)) || (zero(a) && zero(b))) return invalid;
      if (is(a, Kind::infinite)) return infinity(product_sign);
      if (is(b, Kind::infinite)) return {with_sign(format, product_sign, 0), 0};
      if (zero(b)) return {infinity(product_sign).code, kDivideByZero};
      return finish(quotient_model(a.value, b.value));
    case ScalarOperation::sqrt:
      if (zero(a)) return {x, 0};
      if (a.value.negative) return invalid;
      if (is(a, Kind::infinite)) return infinity(false);
      return finish(root_model(a.value));
  }
  return quiet;
}

Result convert_model(const Format& from, uint64_t code, const Format& to, Rounding rounding, Overflow overflow) {
  const Code x = take_apart(from, code);
  const bool no_nan = to.specials.nan == NanCodes::none;
  if (x.kind == Kind::signalling) return {nan_code(to), kInvalid};
  if (x.kind == Kind::quiet) return {nan_code(to), no_nan ? kInvalid : 0u};
  if (x.kind == Kind::finite) return round_model(to, x.value, rounding, overflow);
  const bool negative = x.value.negative;
  if (is_ieee(to) && overflow != Overflow::saturate) return {with_sign(to, negative, infinity_code(to)), 0};
  if (overflow == Overflow::saturate || no_nan)
    return {with_sign(to, negative, largest_code(to)), kOverflow | kInexact};
  return {nan_code(to), kOverflow | kInexact};
}

// NaNs that the overflow rule produces carry the sign of the number; in other NaNs the sign has no meaning.
Result same_nan(const Format& format, Result result) {
  const Code code = take_apart(format, result.code);
  if (code.kind == Kind::quiet) result.code = nan_code(format);
  return result;
}

// Operands near the critical cases: half of them anywhere, half near the last results, with short significands and
// extreme exponents.
uint64_t draw(const Format& format, std::mt19937_64& random) {
  const uint64_t r = random();
  if (r % 4 == 0) return (r >> 8) & 0xFFFF;
  const uint64_t fields = uint64_t{1} << format.exponent_bits;
  const uint64_t field =
      r % 4 == 1 ? (fields + (r >> 8) % 5 - 2) % fields : (fields / 2 + (r >> 8) % 24 + fields - 12) % fields;
  uint64_t fraction = (r >> 16) & ((uint64_t{1} << format.fraction_bits) - 1);
  if ((r >> 40) & 1) fraction &= ~uint64_t{0} << ((r >> 41) % static_cast<uint64_t>(format.fraction_bits + 1));
  if ((r >> 48) % 8 == 0) fraction = (uint64_t{1} << format.fraction_bits) - 1;
  return with_sign(format, (r >> 60) & 1, field << format.fraction_bits | fraction);
}

constexpr Rounding kRoundings[] = {Rounding::near_even, Rounding::toward_zero};

void expect_model(ScalarOperation operation, const Format& format, uint64_t x, uint64_t y, uint64_t z,
                  Rounding rounding) {
  const Result actual = compute(operation, format, x, y, z, rounding),
               expected = model(operation, format, x, y, z, rounding);
  ASSERT_EQ(actual, expected) << format.name << " " << operations()[static_cast<size_t>(operation)].name << " "
                              << name_of(rounding) << std::hex << " " << x << " " << y << " " << z << " is "
                              << actual.code << "/" << actual.flags << ", integers say " << expected.code << "/"
                              << expected.flags;
}

const std::vector<const Format*>& signed_formats() {
  static const std::vector<const Format*> all = [] {
    std::vector<const Format*> formats_with_sign;
    for (const Format& format : formats())
      if (!format.is_scale()) formats_with_sign.push_back(&format);
    return formats_with_sign;
  }();
  return all;
}

// The formats of this many bits that arithmetic on codes supports.
std::vector<const Format*> narrow_formats(int least_bits, int most_bits) {
  std::vector<const Format*> narrow;
  for (const Format* format : signed_formats())
    if (format->bits() >= least_bits && format->bits() <= most_bits) narrow.push_back(format);
  return narrow;
}

TEST(Arithmetic, EveryOperationIsTheModelInIntegers) {
  std::mt19937_64 random(1);
  for (const Format* format : narrow_formats(9, 16))
    for (const Rounding rounding : kRoundings)
      for (int i = 0; i < 150'000; ++i) {
        const uint64_t x = draw(*format, random), y = draw(*format, random), z = draw(*format, random);
        for (const ScalarOperation operation :
             {ScalarOperation::add, ScalarOperation::sub, ScalarOperation::mul, ScalarOperation::div})
          ASSERT_NO_FATAL_FAILURE(expect_model(operation, *format, x, y, 0, rounding));
        ASSERT_NO_FATAL_FAILURE(expect_model(ScalarOperation::mul_add, *format, x, y, z, rounding));
        // An addend that nearly cancels the product, or is slightly above or below its last place.
        uint64_t near = model(ScalarOperation::mul, *format, x, y, 0, rounding).code ^ 0x8000;
        near = (i % 2 ? near + random() % 5 - 2 : near ^ ((random() % 64) << format->fraction_bits)) & 0xFFFF;
        ASSERT_NO_FATAL_FAILURE(expect_model(ScalarOperation::mul_add, *format, x, y, near, rounding));
      }
}

TEST(Arithmetic, EverySquareRootIsTheModelInIntegers) {
  for (const Format* format : narrow_formats(1, 16))
    for (const Rounding rounding : kRoundings)
      for (uint64_t x = 0; x < uint64_t{1} << format->bits(); ++x)
        ASSERT_NO_FATAL_FAILURE(expect_model(ScalarOperation::sqrt, *format, x, 0, 0, rounding));
}

TEST(Arithmetic, AllPairsOfAtMostEightBitsAreTheModelInIntegers) {
  for (const Format* format : narrow_formats(1, 8)) {
    const uint64_t codes = uint64_t{1} << format->bits();
    for (const Rounding rounding : kRoundings)
      for (uint64_t x = 0; x < codes; ++x)
        for (uint64_t y = 0; y < codes; ++y) {
          for (const ScalarOperation operation :
               {ScalarOperation::add, ScalarOperation::sub, ScalarOperation::mul, ScalarOperation::div})
            ASSERT_NO_FATAL_FAILURE(expect_model(operation, *format, x, y, 0, rounding));
          for (uint64_t z = (x + y) % 13; z < codes; z += 13)
            ASSERT_NO_FATAL_FAILURE(expect_model(ScalarOperation::mul_add, *format, x, y, z, rounding));
        }
  }
}

TEST(Arithmetic, DoesNotFallIntoTheTrapOfTwoRoundings) {
  // 1 + 2^-10, 1 - 2^-10 and 2050: the exact answer is 2051 - 2^-20.
  EXPECT_EQ(compute(ScalarOperation::mul_add, kFp16, 0x3C01, 0x3BFE, 0x6801), (Result{0x6801, kInexact}));
}

TEST(Arithmetic, TheFlagsOfIeee754) {
  const auto run = [](ScalarOperation operation, uint64_t x, uint64_t y, uint64_t z = 0,
                      Rounding rounding = Rounding::near_even) { return compute(operation, kFp16, x, y, z, rounding); };
  EXPECT_EQ(run(ScalarOperation::div, 0x3C00, 0x8000, 0), (Result{0xFC00, kDivideByZero}));
  EXPECT_EQ(run(ScalarOperation::div, 0x0000, 0x0000), (Result{0x7E00, kInvalid}));
  EXPECT_EQ(run(ScalarOperation::mul, 0x7BFF, 0x4000), (Result{0x7C00, kOverflow | kInexact}));
  EXPECT_EQ(run(ScalarOperation::mul, 0x7BFF, 0x4000, 0, Rounding::toward_zero),
            (Result{0x7BFF, kOverflow | kInexact}));
  EXPECT_EQ(run(ScalarOperation::mul, 0x0001, 0x3800), (Result{0x0000, kUnderflow | kInexact}));
  EXPECT_EQ(run(ScalarOperation::mul, 0x0002, 0x3800), (Result{0x0001, 0})) << "subnormal and exact: not an underflow";
  // 1448^2 2^-35 is below 2^-14, but rounded to 11 bits it is 2^-14: not tiny. 1447 1448 2^-35 is.
  EXPECT_EQ(run(ScalarOperation::mul, 0x05A8, 0x39A8), (Result{0x0400, kInexact}))
      << "tininess is detected after rounding";
  EXPECT_EQ(run(ScalarOperation::mul, 0x05A8, 0x39A7), (Result{0x03FF, kUnderflow | kInexact}));
  EXPECT_EQ(run(ScalarOperation::add, 0x3C00, 0xBC00, 0, Rounding::toward_zero), (Result{0x0000, 0})) << "x - x is +0";
  EXPECT_EQ(run(ScalarOperation::sqrt, 0x8000, 0), (Result{0x8000, 0}));
  EXPECT_EQ(run(ScalarOperation::sqrt, 0xBC00, 0), (Result{0x7E00, kInvalid}));
  EXPECT_EQ(run(ScalarOperation::add, 0x7D00, 0x3C00), (Result{0x7E00, kInvalid})) << "a signalling NaN";
  EXPECT_EQ(run(ScalarOperation::add, 0xFE01, 0x3C00), (Result{0x7E00, 0})) << "a quiet one: the default NaN";
  EXPECT_EQ(run(ScalarOperation::mul_add, 0x7C00, 0x0000, 0x7E00), (Result{0x7E00, kInvalid})) << "as RISC-V";
  EXPECT_EQ(compute(ScalarOperation::div, kE4m3, 0x38, 0x00, 0), (Result{0x7F, kDivideByZero}))
      << "no infinity to give";
  EXPECT_THROW(compute(ScalarOperation::add, kFp32, 0, 0, 0), Error);
  EXPECT_THROW(compute(ScalarOperation::add, kE8m0, 0, 0, 0), Error);
}

// Conversions.

void expect_conversion(const Format& from, uint64_t code, const Format& to, Rounding rounding, Overflow overflow) {
  const Result actual = same_nan(to, convert_code(from, code, to, rounding, overflow)),
               expected = same_nan(to, convert_model(from, code, to, rounding, overflow));
  ASSERT_EQ(actual, expected) << from.name << " to " << to.name << " " << name_of(rounding) << " " << name_of(overflow)
                              << std::hex << " " << code << " is " << actual.code << "/" << actual.flags
                              << ", integers say " << expected.code << "/" << expected.flags;
}

void expect_conversion_by_every_rule(const Format& from, uint64_t code, const Format& to) {
  for (const Rounding rounding : {Rounding::near_even, Rounding::toward_zero, Rounding::near_away})
    for (const Overflow overflow : {Overflow::format_default, Overflow::infinity, Overflow::nan, Overflow::saturate})
      expect_conversion(from, code, to, rounding, overflow);
}

TEST(Conversion, EveryNarrowCodeToEveryFormatByEveryRule) {
  for (const Format* from : signed_formats()) {
    if (from->bits() > 16) continue;
    for (const Format* to : signed_formats())
      for (uint64_t code = 0; code < uint64_t{1} << from->bits(); ++code)
        ASSERT_NO_FATAL_FAILURE(expect_conversion_by_every_rule(*from, code, *to));
  }
}

// 2^20 numbers, or 2^28 with HALFMARK_LONG=1 in the environment.
TEST(Conversion, Fp32ToEveryFormatByEveryRule) {
  const char* wants = std::getenv("HALFMARK_LONG");
  const uint64_t samples = uint64_t{1} << (wants && std::string_view(wants) == "1" ? 28 : 20);
  constexpr Rounding kAll[] = {Rounding::near_even, Rounding::toward_zero, Rounding::near_away};
  constexpr Overflow kRules[] = {Overflow::format_default, Overflow::infinity, Overflow::nan, Overflow::saturate};
  std::mt19937_64 random(3);
  for (uint64_t i = 0; i < samples; ++i) {
    const uint64_t r = random();
    const Format& to = *signed_formats()[r % signed_formats().size()];
    uint64_t code = (r >> 8) & 0xFFFFFFFF;
    if (i % 2) {  // near the numbers and ties of the target, and near its limits
      const int exponent =
          static_cast<int>((r >> 40) % static_cast<uint64_t>(to.max_exponent() - to.min_exponent() + 30));
      const auto field = std::clamp(to.min_exponent() - to.fraction_bits - 3 + exponent + 127, 0, 255);
      code = (code & 0x807FFFFF) | static_cast<uint64_t>(field) << 23;
      const int cleared = std::max(0, 23 - to.fraction_bits - 1);
      code = (code & ~((uint64_t{1} << cleared) - 1)) + (r >> 33) % 3 - 1;
      code &= 0xFFFFFFFF;
    }
    ASSERT_NO_FATAL_FAILURE(expect_conversion(kFp32, code, to, kAll[(r >> 60) % 3], kRules[(r >> 62) % 4]));
  }
}

TEST(Conversion, StochasticResultsAreOneOfTheTwoNeighbours) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t code = random() & 0xFFFF, noise = random();
    const Result down = convert_code(kFp16, code, kE4m3, Rounding::toward_zero),
                 any = convert_code(kFp16, code, kE4m3, Rounding::stochastic, Overflow::saturate, noise);
    if (take_apart(kFp16, code).kind != Kind::finite) continue;
    ASSERT_TRUE(any.code == down.code || any.code == down.code + 1) << std::hex << code;
    ASSERT_EQ(any.flags & kInexact, down.flags & kInexact) << std::hex << code;
  }
}

TEST(Conversion, ToScalesAndIntegers) {
  EXPECT_EQ(convert_code(kFp32, 0x40400000, kE8m0), (Result{0x81, kInexact}));  // 3
  EXPECT_EQ(convert_code(kFp32, 0xC0000000, kE8m0), (Result{0x80, kInexact})) << "the sign of -2 is lost";
  EXPECT_EQ(convert_code(kFp32, 0, kE8m0), (Result{0x00, kInexact | kUnderflow}));
  EXPECT_EQ(convert_code(kFp32, 0x7F800000, kE8m0), (Result{0xFF, kInexact | kOverflow}));
  EXPECT_EQ(convert_code(kE8m0, 0x00, kFp32), (Result{0x00400000, 0}));
  EXPECT_EQ(convert_code(kE8m0, 0xFF, kFp16), (Result{0x7E00, 0}));
  const auto to_i32 = [](float x, Rounding rounding, uint64_t noise = 0) {
    return convert_code(DType::f32, std::bit_cast<uint32_t>(x), DType::i32, rounding, Overflow::format_default, noise);
  };
  EXPECT_EQ(to_i32(2.5F, Rounding::near_even), (Result{2, kInexact}));
  EXPECT_EQ(to_i32(2.5F, Rounding::near_away), (Result{3, kInexact}));
  EXPECT_EQ(to_i32(-2.75F, Rounding::toward_zero), (Result{0xFFFFFFFE, kInexact}));
  EXPECT_EQ(to_i32(-3.5F, Rounding::near_even), (Result{0xFFFFFFFC, kInexact}));
  EXPECT_EQ(to_i32(2.25F, Rounding::stochastic, 0), (Result{3, kInexact}));
  EXPECT_EQ(to_i32(2.25F, Rounding::stochastic, uint64_t{1} << 62), (Result{2, kInexact}));
  EXPECT_EQ(to_i32(1e10F, Rounding::near_even), (Result{0x7FFFFFFF, kInvalid}));
  EXPECT_EQ(to_i32(-HUGE_VALF, Rounding::near_even), (Result{0x80000000, kInvalid}));
  EXPECT_EQ(to_i32(std::nanf(""), Rounding::near_even), (Result{0, kInvalid}));
  EXPECT_EQ(convert_code(DType::i32, 0xFFFFFFFF, DType::f16), (Result{0xBC00, 0}));
  EXPECT_EQ(convert_code(DType::i32, 16777217, DType::f32), (Result{0x4B800000, kInexact}));
  EXPECT_EQ(convert_code(DType::i32, 300, DType::u8), (Result{255, kInvalid}));
}

}  // namespace
}  // namespace halfmark::kernels
