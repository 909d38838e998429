// Rounding: once, in every mode, with the events counted; and the fused multiply-add against 128-bit integers.
#include "kernels/number/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Format, DerivedNumbersAreThoseOfTheStandards) {
  EXPECT_EQ(kFp16.max_finite(), 65504);
  EXPECT_EQ(kFp16.min_exponent(), -14);
  EXPECT_EQ(kFp16.min_subnormal_exponent(), -24);
  EXPECT_EQ(kFp16.unit_roundoff(), 0x1p-11);
  EXPECT_EQ(kBf16.max_finite(), 0x1.FEp127);
  EXPECT_EQ(kTf32.max_finite(), 0x1.FFCp127);
  EXPECT_EQ(kFp32.max_finite(), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(kFp32.min_subnormal_exponent(), -149);
  EXPECT_EQ(kFp64.max_finite(), std::numeric_limits<double>::max());
  EXPECT_EQ(kE4m3.max_finite(), 448);  // OFP8 1.0, table 1
  EXPECT_EQ(kE4m3.min_subnormal_exponent(), -9);
  EXPECT_EQ(kE5m2.max_finite(), 57344);
  EXPECT_EQ(kE5m2.min_subnormal_exponent(), -16);
  EXPECT_EQ(kE3m2.max_finite(), 28);  // MX 1.0, section 5.3
  EXPECT_EQ(kE3m2.min_subnormal_exponent(), -4);
  EXPECT_EQ(kE2m3.max_finite(), 7.5);
  EXPECT_EQ(kE2m3.min_subnormal_exponent(), -3);
  EXPECT_EQ(kE2m1.max_finite(), 6);  // MX 1.0, section 5.3
  EXPECT_EQ(kE2m1.min_subnormal_exponent(), -1);
  EXPECT_EQ(kE8m0.max_finite(), 0x1p127);  // MX 1.0, section 5.4
  EXPECT_EQ(kE8m0.min_exponent(), -127);
  EXPECT_EQ(kTf32.bits(), 19);
  EXPECT_EQ(kE2m3.bits(), 6);
  EXPECT_EQ(kE8m0.bits(), 8);
}

TEST(Format, NamesAndNumbersTellFormatsApart) {
  for (const Format& a : formats())
    for (const Format& b : formats()) {
      if (&a == &b) continue;
      EXPECT_NE(a.name, b.name);
      EXPECT_NE(a.key(), b.key()) << a.name << " and " << b.name;
    }
}

TEST(Format, AnUnknownNameIsAnErrorThatNamesTheKnownOnes) {
  EXPECT_EQ(format_named("tf32"), kTf32);
  try {
    format_named("fp17");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fp16, bf16"), std::string::npos) << error.what();
  }
}

TEST(RoundTo, RoundsOnceAndNotThroughFp32) {
  // Just above a tie of fp16: fp32 would lose the last bit and then round the tie down to even.
  EXPECT_EQ(round_to(kFp16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(static_cast<float>(1 + 0x1p-11 + 0x1p-40), static_cast<float>(1 + 0x1p-11));
  // Just below a tie whose even neighbour is above.
  EXPECT_EQ(round_to(kFp16, 1 + 3 * 0x1p-11 - 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(round_to(kBf16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(round_to(kE4m3, 1 + 0x1p-4 + 0x1p-30), 1.125);
  // The same below the smallest normal number, and at half of the smallest subnormal.
  EXPECT_EQ(round_to(kFp16, 0x1p-25), 0);
  EXPECT_EQ(round_to(kFp16, 0x1p-25 + 0x1p-60), 0x1p-24);
  EXPECT_EQ(round_to(kFp16, 3 * 0x1p-25), 0x1p-23);
  EXPECT_EQ(round_to(kFp32, 0x1p-150), 0);
  EXPECT_EQ(round_to(kFp32, std::nextafter(0x1p-150, 1.0)), 0x1p-149);
}

TEST(RoundTo, AgreesWithTheHardwareForFp32) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    // Exponents around all of fp32's range, including its subnormals and overflow.
    const uint64_t exponent = 1023 - 160 + random() % 300;
    const double x = std::bit_cast<double>((random() & 0x800FFFFFFFFFFFFFu) | exponent << 52);
    ASSERT_EQ(round_to(kFp32, x), static_cast<double>(static_cast<float>(x))) << std::hexfloat << x;
  }
}

TEST(RoundTo, OverflowsAtHalfAPlaceAboveTheLargestNumber) {
  EXPECT_EQ(round_to(kFp16, 65519.999), 65504);
  EXPECT_EQ(round_to(kFp16, 65520), kInf);
  EXPECT_EQ(round_to(kFp16, -65520), -kInf);
  EXPECT_EQ(round_to(kFp16, 1e300, Rounding::toward_zero), 65504);
  EXPECT_EQ(round_to(kFp16, 65519.999, Rounding::near_away), 65504);
  EXPECT_EQ(round_to(kFp16, 65520, Rounding::near_away), kInf);
  EXPECT_EQ(round_to(kE4m3, 464), 448);  // the tie goes to the even 448
  EXPECT_TRUE(std::isnan(round_to(kE4m3, 464.001)));
  EXPECT_TRUE(std::isnan(round_to(kE4m3, kInf)));
  EXPECT_EQ(round_to(kFp16, 65536, Rounding::near_even), kInf) << "2^16 as a loss scale is infinite in fp16";
}

TEST(RoundTo, KeepsTheSignOfZeroAndOfWhatUnderflows) {
  EXPECT_TRUE(std::signbit(round_to(kFp16, -0.0)));
  EXPECT_TRUE(std::signbit(round_to(kFp16, -1e-30)));
  EXPECT_EQ(round_to(kFp16, -1e-30), 0);
}

TEST(RoundTo, DirectedAndAwayModes) {
  EXPECT_EQ(round_to(kFp16, 1 + 0x1p-11, Rounding::near_even), 1);
  EXPECT_EQ(round_to(kFp16, 1 + 0x1p-11, Rounding::near_away), 1 + 0x1p-10);
  EXPECT_EQ(round_to(kFp16, -1 - 0x1p-11, Rounding::near_away), -1 - 0x1p-10);
  EXPECT_EQ(round_to(kFp16, 1 + 0x1.FFFp-11, Rounding::toward_zero), 1);
  EXPECT_EQ(round_to(kFp16, -1 - 0x1.FFFp-11, Rounding::toward_zero), -1);
  EXPECT_EQ(round_to(kFp16, 0x1.FFFp-25, Rounding::toward_zero), 0);
  EXPECT_EQ(round_to(kFp16, 0x1p-25, Rounding::near_away), 0x1p-24);
}

TEST(RoundTo, EveryNarrowNeighbourhoodByDefinition) {
  // For each pair of neighbouring numbers of a format: values between them round as the mode specifies.
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype) || bits_of(dtype) > 16 || format_of(dtype).is_scale()) continue;
    const Format& format = format_of(dtype);
    const uint64_t codes = uint64_t{1} << (format.exponent_bits + format.fraction_bits);
    for (uint64_t code = 0; code + 1 < codes; ++code) {
      const double low = decode(dtype, code), high = decode(dtype, code + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) break;
      const double middle = (low + high) / 2, even = code & 1 ? high : low;
      ASSERT_EQ(round_to(format, middle), even) << format.name << " code " << code;
      ASSERT_EQ(round_to(format, middle, Rounding::near_away), high);
      ASSERT_EQ(round_to(format, middle, Rounding::toward_zero), low);
      ASSERT_EQ(round_to(format, std::nextafter(middle, 0.0)), low);
      ASSERT_EQ(round_to(format, std::nextafter(middle, kInf)), high);
      ASSERT_EQ(round_to(format, std::nextafter(middle, 0.0), Rounding::near_away), low);
      ASSERT_EQ(round_to(format, std::nextafter(high, 0.0), Rounding::toward_zero), low);
      ASSERT_EQ(round_to(format, -middle), -even);
    }
  }
}

TEST(RoundTo, CountsWhatIsLost) {
  RoundEvents events;
  for (const double x : {1.0, 1 + 0x1p-20, 70000.0, -70000.0, 1e-9, 0x1p-20, 0.0, kInf})
    round_to(kFp16, x, Rounding::near_even, &events);
  EXPECT_EQ(events.values, 8u);
  EXPECT_EQ(events.inexact, 4u);    // 1 + 2^-20, the two overflows, 1e-9
  EXPECT_EQ(events.overflow, 2u);   // an infinite input is not an overflow
  EXPECT_EQ(events.underflow, 1u);  // 1e-9; a zero input is not an underflow
  EXPECT_EQ(events.subnormal, 1u);  // 2^-20, exact
  RoundEvents e4m3;
  round_to(kE4m3, 1000, Rounding::near_even, &e4m3);
  EXPECT_EQ(e4m3.overflow, 1u);
  EXPECT_EQ(e4m3.inexact, 1u);
}

double rounded(const Format& format, double x, Overflow overflow, Rounding rounding = Rounding::near_even) {
  return round_to(format, x, rounding, nullptr, 0, overflow);
}

TEST(Overflow, TheRuleSaysWhatStandsBeyondTheLargestNumber) {
  struct Case {
    const Format& format;
    double normal, infinity, nan;  // expected results of the rules; NaN is written as 0
  };
  for (const Case& c :
       {Case{kFp16, kInf, kInf, 0}, Case{kE5m2, kInf, kInf, 0}, Case{kBf16, kInf, kInf, 0}, Case{kE4m3, 0, 0, 0},
        Case{kE2m1, 6, 6, 6}, Case{kE3m2, 28, 28, 28}, Case{kE2m3, 7.5, 7.5, 7.5}})
    for (const double sign : {1.0, -1.0}) {
      const double most = c.format.max_finite(), too_much = sign * most * 4;
      const auto expect = [&](Overflow overflow, double magnitude) {
        const double result = rounded(c.format, too_much, overflow);
        if (magnitude == 0) {
          EXPECT_TRUE(std::isnan(result)) << c.format.name << " " << name_of(overflow);
        } else {
          EXPECT_EQ(result, sign * magnitude) << c.format.name << " " << name_of(overflow);
        }
      };
      expect(Overflow::format_default, c.normal), expect(Overflow::infinity, c.infinity);
      expect(Overflow::nan, c.nan), expect(Overflow::saturate, most);
      for (const Overflow rule : {Overflow::format_default, Overflow::infinity, Overflow::nan, Overflow::saturate})
        EXPECT_EQ(rounded(c.format, too_much, rule, Rounding::toward_zero), sign * most) << name_of(rule);
    }
  EXPECT_EQ(rounded(kFp16, 65519, Overflow::nan), 65504) << "rounding down to the largest number is not an overflow";
}

TEST(Overflow, InfinitiesStayUnlessTheRuleIsSaturate) {
  for (const Overflow rule : {Overflow::format_default, Overflow::infinity, Overflow::nan}) {
    EXPECT_EQ(rounded(kFp16, -kInf, rule), -kInf);
    EXPECT_TRUE(std::isnan(rounded(kE4m3, kInf, rule)));
    EXPECT_EQ(rounded(kE2m1, -kInf, rule), -6);
    EXPECT_TRUE(std::isnan(rounded(kE8m0, kInf, rule)));
  }
  EXPECT_EQ(rounded(kFp16, -kInf, Overflow::saturate), -65504);
  EXPECT_EQ(rounded(kE5m2, kInf, Overflow::saturate), 57344);
  EXPECT_EQ(rounded(kE4m3, -kInf, Overflow::saturate), -448);
  EXPECT_EQ(rounded(kE8m0, kInf, Overflow::saturate), 0x1p127);
  EXPECT_EQ(rounded(kFp64, kInf, Overflow::saturate), std::numeric_limits<double>::max());
  EXPECT_TRUE(std::isnan(rounded(kE4m3, std::nan(""), Overflow::saturate)));
  EXPECT_EQ(rounded(kE2m1, -std::nan(""), Overflow::nan), 6) << "a format without NaN has its largest number instead";
}

TEST(Overflow, ARuleThatAFormatCannotFollowIsAnError) {
  const auto text = [](const Format& format, Overflow overflow) -> std::string {
    try {
      require_possible(format, overflow);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text(kE4m3, Overflow::infinity), "overflow rule 'infinity': e4m3 has no infinity; possible: nan, saturate");
  EXPECT_EQ(text(kE2m1, Overflow::nan), "overflow rule 'nan': e2m1 has no NaN; possible: saturate");
  for (const Format& format : formats()) {
    EXPECT_EQ(text(format, Overflow::saturate), "");
    EXPECT_EQ(text(format, Overflow::format_default), "");
  }
  EXPECT_EQ(text(kE5m2, Overflow::nan) + text(kFp16, Overflow::infinity), "");
  EXPECT_EQ(overflow_named("saturate"), Overflow::saturate);
  EXPECT_THROW(overflow_named("wrap"), Error);
  EXPECT_EQ(rounding_named("stochastic"), Rounding::stochastic);
  EXPECT_THROW(rounding_named("up"), Error);
}

TEST(RoundTo, AScaleIsAPowerOfTwo) {
  EXPECT_EQ(round_to(kE8m0, 1.499), 1);
  EXPECT_EQ(round_to(kE8m0, 1.5), 2) << "a tie of one digit goes to the larger number";
  EXPECT_EQ(round_to(kE8m0, 3), 4);
  EXPECT_EQ(round_to(kE8m0, 1.999, Rounding::toward_zero), 1);
  EXPECT_EQ(round_to(kE8m0, -8.5), 8) << "a scale has no sign";
  EXPECT_EQ(round_to(kE8m0, 0), 0x1p-127) << "and no zero";
  EXPECT_EQ(round_to(kE8m0, 0x1p-140), 0x1p-127);
  EXPECT_EQ(round_to(kE8m0, 0x1.8p-127), 0x1p-126);
  EXPECT_EQ(round_to(kE8m0, 0x1.7p127), 0x1p127);
  EXPECT_TRUE(std::isnan(round_to(kE8m0, 0x1.8p127)));
  EXPECT_EQ(round_to(kE8m0, 0x1.8p127, Rounding::toward_zero), 0x1p127);
}

TEST(StochasticRounding, IsAFunctionOfTheNoise) {
  const double x = 1 + 0.3 * 0x1p-10;
  EXPECT_EQ(round_to(kFp16, x, Rounding::stochastic, nullptr, 0), 1 + 0x1p-10);   // the smallest noise rounds up
  EXPECT_EQ(round_to(kFp16, x, Rounding::stochastic, nullptr, ~uint64_t{0}), 1);  // the largest rounds down
  EXPECT_EQ(round_to(kFp16, 1.5, Rounding::stochastic, nullptr, 0), 1.5) << "an exact number never changes";
  for (const uint64_t noise : {uint64_t{1}, uint64_t{12345}, uint64_t{1} << 63})
    EXPECT_EQ(round_to(kFp16, x, Rounding::stochastic, nullptr, noise),
              round_to(kFp16, x, Rounding::stochastic, nullptr, noise));
}

TEST(StochasticRounding, IsUnbiased) {
  std::mt19937_64 random(7);
  const int samples = 200'000;
  for (const Format& format : formats()) {
    if (format == kFp64 || format.is_scale()) continue;  // nothing to round, or no sign that keeps the two ends apart
    for (const double share : {0.0625, 0.3, 0.5, 0.9}) {
      const double place = 2 * format.unit_roundoff(), x = 1 + share * place;
      int up = 0;
      for (int i = 0; i < samples; ++i) up += round_to(format, x, Rounding::stochastic, nullptr, random()) > 1;
      // Six standard deviations of a binomial.
      EXPECT_NEAR(static_cast<double>(up) / samples, share, 6 * std::sqrt(share * (1 - share) / samples))
          << format.name;
    }
  }
  // Far below the smallest subnormal the probability is still the quotient.
  int up = 0;
  for (int i = 0; i < samples; ++i) up += round_to(kFp16, 0x1p-24 / 64, Rounding::stochastic, nullptr, random()) > 0;
  EXPECT_NEAR(static_cast<double>(up) / samples, 1.0 / 64, 6 * std::sqrt(1.0 / 64 / samples));
}

// a b + c for fp16 operands in integers: every number is a multiple
// of 2^-48 and at most 2^32, so 128 bits hold the sum exactly.
__extension__ using Signed128 = __int128;

double fp16_fma_by_integers(double a, double b, double c) {
  const auto units = [](double x, int scale) { return static_cast<int64_t>(std::ldexp(x, scale)); };
  Signed128 sum = static_cast<Signed128>(units(a, 24)) * units(b, 24) +
                  (static_cast<Signed128>(units(c, 24)) << 24);  // in units of 2^-48
  const bool negative = sum < 0;
  if (negative) sum = -sum;
  int top = 0;
  while (top < 126 && (sum >> (top + 1)) != 0) ++top;
  // Kept: 11 bits, but nothing below 2^-24, which is bit 24.
  const int drop = std::max(top - 10, 24);
  const Signed128 kept = sum >> drop, lost = sum - (kept << drop), half = static_cast<Signed128>(1) << (drop - 1);
  const Signed128 rounded = kept + (lost > half || (lost == half && (kept & 1)));
  double result = std::ldexp(static_cast<double>(static_cast<int64_t>(rounded)), drop - 48);
  if (result > 65504) result = kInf;
  return negative ? -result : result;
}

TEST(FusedMultiplyAdd, IsExactForFp16) {
  std::mt19937_64 random(3);
  const auto any = [&] {
    for (;;)
      if (const double x = decode(DType::f16, random() & 0xFFFF); std::isfinite(x)) return x;
  };
  for (int i = 0; i < 1'000'000; ++i) {
    const double a = any(), b = any();
    // Every third addend nearly cancels the product, every other third is at its last places.
    double c = any();
    if (i % 3 == 0) c = round_to(kFp16, -a * b * (1 + static_cast<double>(random() % 5) * 0x1p-11));
    if (i % 3 == 1) c = round_to(kFp16, a * b * std::ldexp(1.0, static_cast<int>(random() % 24) - 12));
    if (!std::isfinite(c)) continue;
    ASSERT_EQ(fused_multiply_add(kFp16, a, b, c), fp16_fma_by_integers(a, b, c))
        << std::hexfloat << a << " " << b << " " << c;
  }
}

TEST(FusedMultiplyAdd, DoesNotFallIntoTheTrapOfTwoRoundings) {
  const double a = 1 + 0x1p-10, b = 1 - 0x1p-10, c = 2050;  // the exact sum is 2051 - 2^-20
  EXPECT_EQ(fused_multiply_add(kFp16, a, b, c), 2050);
  EXPECT_EQ(round_to(kFp16, static_cast<double>(static_cast<float>(a * b + c))), 2052) << "the wrong way, through fp32";
}

TEST(FusedMultiplyAdd, IsTheHardwaresForFp32AndFp64) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto number = [&] {
      return std::bit_cast<float>(static_cast<uint32_t>((random() & 0x807FFFFF) | ((40 + random() % 170) << 23)));
    };
    const float a = number(), b = number();
    const float c = i % 2 ? number() : -a * b * (1 + static_cast<float>(random() % 3) * 0x1p-22f);
    ASSERT_EQ(fused_multiply_add(kFp32, static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)),
              static_cast<double>(std::fmaf(a, b, c)))
        << std::hexfloat << a << " " << b << " " << c;
  }
  EXPECT_EQ(fused_multiply_add(kFp64, 1 + 0x1p-52, 1 - 0x1p-52, -1), -0x1p-104);
}

TEST(FusedMultiplyAdd, PassesSpecialsOn) {
  EXPECT_EQ(fused_multiply_add(kFp16, kInf, 2, -5), kInf);
  EXPECT_TRUE(std::isnan(fused_multiply_add(kFp16, kInf, 0, 1)));
  EXPECT_TRUE(std::isnan(fused_multiply_add(kFp16, kInf, 1, -kInf)));
  EXPECT_EQ(fused_multiply_add(kFp16, 65504, 65504, -kInf), -kInf);
}

TEST(AddToOdd, IsTheOddNeighbourWhenInexact) {
  EXPECT_EQ(add_to_odd(1, 2), 3);
  EXPECT_EQ(add_to_odd(1, 0x1p-60), 1 + 0x1p-52);
  EXPECT_EQ(add_to_odd(1, -0x1p-60), 1 - 0x1p-53);
  EXPECT_EQ(add_to_odd(-1, -0x1p-60), -1 - 0x1p-52);
  EXPECT_EQ(add_to_odd(1 + 0x1p-52, 0x1p-60), 1 + 0x1p-52);
}

}  // namespace
}  // namespace halfmark::kernels
