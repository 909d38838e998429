// Decodes and encodes every code of every narrow dtype in the table. Compares with independent conversions: the
// compiler's _Float16 and the CPU's F16C.
#include "kernels/number/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/number/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace halfmark::kernels {
namespace {

uint64_t codes_of(DType dtype) { return uint64_t{1} << bits_of(dtype); }

std::vector<DType> narrow_dtypes() {
  std::vector<DType> narrow;
  for (const DType dtype : dtypes())
    if (bits_of(dtype) <= 16) narrow.push_back(dtype);
  return narrow;
}

TEST(DType, EveryNarrowCodeThereAndBack) {
  for (const DType dtype : narrow_dtypes())
    for (uint64_t code = 0; code < codes_of(dtype); ++code) {
      const double value = decode(dtype, code);
      const uint64_t back = encode(dtype, value);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(decode(dtype, back))) << name_of(dtype) << " " << code;
        ASSERT_EQ(back >> (bits_of(dtype) - 1), code >> (bits_of(dtype) - 1)) << "the sign of a NaN is kept";
      } else {
        ASSERT_EQ(back, code) << name_of(dtype);
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(decode(dtype, code | ~uint64_t{0} << bits_of(dtype))),
                std::bit_cast<uint64_t>(value))
          << name_of(dtype) << ": bits above the code are ignored";
    }
}

// Positive codes are in increasing order, each with its negative. Non-numbers are at the codes and in the count that
// the format specifies.
TEST(DType, NarrowCodesAreInTheOrderOfTheirNumbers) {
  for (const DType dtype : narrow_dtypes()) {
    if (!is_floating(dtype)) continue;
    const Format& format = format_of(dtype);
    uint64_t numbers = 0, infinities = 0, nans = 0;
    const uint64_t positive = format.is_scale() ? codes_of(dtype) : codes_of(dtype) / 2;
    double before = -1;
    for (uint64_t code = 0; code < positive; ++code) {
      const double value = decode(dtype, code), negative = decode(dtype, code + positive);
      nans += std::isnan(value) + (!format.is_scale() && std::isnan(negative));
      infinities += std::isinf(value);
      numbers += std::isfinite(value);
      if (std::isnan(value)) continue;
      ASSERT_GT(value, before) << name_of(dtype) << " " << code;
      before = value;
      if (!format.is_scale() && !std::isnan(negative)) {
        ASSERT_EQ(negative, -value) << name_of(dtype) << " " << code;
        ASSERT_TRUE(std::signbit(negative)) << name_of(dtype) << " " << code;
      }
    }
    EXPECT_EQ(infinities, format.has_infinity() ? 1u : 0u) << name_of(dtype);
    EXPECT_EQ(nans > 0, format.has_nan()) << name_of(dtype);
    EXPECT_EQ(decode(dtype, numbers - 1), format.max_finite()) << name_of(dtype);
    // Numbers and specials of both signs account for all codes.
    EXPECT_EQ((numbers + infinities) * (format.is_scale() ? 1 : 2) + nans -
                  !(format.is_scale() || format.has_negative_zero()),
              codes_of(dtype))
        << name_of(dtype);
    if (format.fraction_bits > 0) {
      EXPECT_EQ(decode(dtype, 0), 0) << name_of(dtype);
      EXPECT_EQ(decode(dtype, 1), std::ldexp(1.0, format.min_subnormal_exponent())) << name_of(dtype);
      EXPECT_EQ(decode(dtype, uint64_t{1} << format.fraction_bits), std::ldexp(1.0, format.min_exponent()));
    }
  }
}

TEST(DType, ZerosInfinitiesAndNaNsBecomeWhatTheFormatHasForThem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype)) continue;
    const Format& format = format_of(dtype);
    const auto there_and_back = [&](double x) { return decode(dtype, encode(dtype, x)); };
    for (const double sign : {1.0, -1.0}) {
      const bool negative = sign < 0 && !format.is_scale();
      const double zero = there_and_back(std::copysign(0.0, sign)), infinity = there_and_back(sign * kInfinity);
      EXPECT_EQ(zero, format.is_scale() ? format.max_finite() / std::ldexp(1.0, 2 * format.bias()) : 0);
      EXPECT_EQ(std::signbit(zero), negative && format.has_negative_zero()) << name_of(dtype);
      if (format.has_infinity()) {
        EXPECT_EQ(infinity, sign * kInfinity) << name_of(dtype);
      } else if (format.has_nan()) {
        EXPECT_TRUE(std::isnan(infinity)) << name_of(dtype);
      } else {
        EXPECT_EQ(infinity, sign * format.max_finite()) << name_of(dtype);
      }
      EXPECT_EQ(std::isnan(there_and_back(std::copysign(nan, sign))), format.has_nan()) << name_of(dtype);
      EXPECT_EQ(there_and_back(std::copysign(format.max_finite(), sign)),
                negative ? -format.max_finite() : format.max_finite());
    }
  }
}

TEST(DType, NaNsBecomeTheQuietOne) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(encode(DType::f16, nan), 0x7E00u);
  EXPECT_EQ(encode(DType::f16, -nan), 0xFE00u);
  EXPECT_EQ(encode(DType::bf16, nan), 0x7FC0u);
  EXPECT_EQ(encode(DType::f32, nan), 0x7FC00000u);
  EXPECT_EQ(encode(DType::e4m3, nan), 0x7Fu);
  EXPECT_EQ(encode(DType::e5m2, nan), 0x7Eu);
  EXPECT_EQ(encode(DType::i32, nan), 0u);
}

TEST(DType, ThePublishedCodesOfFp8) {  // OFP8 1.0, table 2
  EXPECT_EQ(decode(DType::e4m3, 0x7E), 448);
  EXPECT_TRUE(std::isnan(decode(DType::e4m3, 0x7F)));
  EXPECT_EQ(decode(DType::e4m3, 0x08), 0x1p-6);
  EXPECT_EQ(decode(DType::e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(decode(DType::e5m2, 0x7B), 57344);
  EXPECT_EQ(decode(DType::e5m2, 0x7C), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(decode(DType::e5m2, 0x7D)));
  EXPECT_EQ(decode(DType::e5m2, 0x01), 0x1p-16);
}

TEST(DType, ThePublishedCodesOfFnuz) {  // arXiv:2206.02915: no infinity, one NaN at the code of -0, a bias larger by 1
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(decode(DType::e4m3fnuz, 0x7F), 240);
  EXPECT_EQ(decode(DType::e4m3fnuz, 0xFF), -240);
  EXPECT_EQ(decode(DType::e4m3fnuz, 0x40), 1);
  EXPECT_EQ(decode(DType::e4m3fnuz, 0x08), 0x1p-7);
  EXPECT_EQ(decode(DType::e4m3fnuz, 0x01), 0x1p-10);
  EXPECT_EQ(decode(DType::e5m2fnuz, 0x7F), 57344);
  EXPECT_EQ(decode(DType::e5m2fnuz, 0x40), 1);
  EXPECT_EQ(decode(DType::e5m2fnuz, 0x04), 0x1p-15);
  EXPECT_EQ(decode(DType::e5m2fnuz, 0x01), 0x1p-17);
  for (const DType dtype : {DType::e4m3fnuz, DType::e5m2fnuz}) {
    EXPECT_TRUE(std::isnan(decode(dtype, 0x80)));
    for (const double x : {nan, -nan, infinity, -infinity, 1e6, -1e6}) EXPECT_EQ(encode(dtype, x), 0x80u) << x;
    for (const double x : {0.0, -0.0, -1e-30}) EXPECT_EQ(encode(dtype, x), 0x00u) << x;
    EXPECT_EQ(encode(dtype, -1e6, Rounding::near_even, nullptr, 0, Overflow::saturate), 0xFFu);
  }
  EXPECT_EQ(encode(DType::e4m3fnuz, 248), 0x80u)
      << "a tie between 240 and 256 goes to the even 256, which is too large";
  EXPECT_EQ(encode(DType::e4m3fnuz, 247.99), 0x7Fu);
}

TEST(DType, ThePublishedCodesOfFp6Fp4AndScales) {  // MX 1.0, sections 5.3 and 5.4
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint64_t code = 0; code < 8; ++code) {
    EXPECT_EQ(decode(DType::e2m1, code), e2m1[code]);
    EXPECT_EQ(decode(DType::e2m1, code | 8), -e2m1[code]);
  }
  EXPECT_EQ(decode(DType::e3m2, 0x1F), 28);
  EXPECT_EQ(decode(DType::e3m2, 0x04), 0.25);
  EXPECT_EQ(decode(DType::e3m2, 0x21), -0.0625);
  EXPECT_EQ(decode(DType::e2m3, 0x1F), 7.5);
  EXPECT_EQ(decode(DType::e2m3, 0x08), 1);
  EXPECT_EQ(decode(DType::e2m3, 0x01), 0.125);
  EXPECT_EQ(decode(DType::e8m0, 0x00), 0x1p-127);
  EXPECT_EQ(decode(DType::e8m0, 0x7F), 1);
  EXPECT_EQ(decode(DType::e8m0, 0xFE), 0x1p127);
  EXPECT_TRUE(std::isnan(decode(DType::e8m0, 0xFF)));
  EXPECT_EQ(encode(DType::e8m0, std::nan("")), 0xFFu);
  EXPECT_EQ(encode(DType::e2m1, std::nan("")), 0x7u);
  EXPECT_EQ(encode(DType::e3m2, -1e9), 0x3Fu);
}

TEST(DType, IntegersRoundAndClamp) {
  EXPECT_EQ(decode(DType::i32, encode(DType::i32, -3.5)), -4);
  EXPECT_EQ(decode(DType::i32, encode(DType::i32, 1e12)), 2147483647);
  EXPECT_EQ(encode(DType::u8, -3), 0u);
  EXPECT_EQ(encode(DType::u8, 300), 255u);
}

TEST(DType, NamesAndSizes) {
  for (const DType dtype : dtypes()) EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
  EXPECT_THROW(dtype_named("half"), Error);
  EXPECT_THROW(format_of(DType::i32), Error);
  EXPECT_EQ(size_of(DType::f64), 8u);
  EXPECT_EQ(size_of(DType::e5m2), 1u);
  EXPECT_EQ(size_of(DType::e3m2), 1u);
  EXPECT_THROW(size_of(DType::e2m1), Error) << "half a byte is not a whole number of bytes";
  EXPECT_EQ(bits_of(DType::e2m1), 4);
  EXPECT_EQ(bits_of(DType::e2m3), 6);
  EXPECT_EQ(bits_of(DType::i32), 32);
  EXPECT_EQ(bytes_for(DType::e2m1, 0), 0u);
  EXPECT_EQ(bytes_for(DType::e2m1, 7), 4u);
  EXPECT_EQ(bytes_for(DType::e2m1, 8), 4u);
  EXPECT_EQ(bytes_for(DType::e2m3, 7), 7u);
  EXPECT_EQ(bytes_for(DType::f64, 3), 24u);
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype)) continue;
    EXPECT_EQ(bits_of(dtype), format_of(dtype).bits()) << name_of(dtype);
  }
}

TEST(DType, Fp32IsTheHardwares) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto code = static_cast<uint32_t>(random());
    const float value = std::bit_cast<float>(code);
    if (std::isnan(value)) continue;
    ASSERT_EQ(decode(DType::f32, code), static_cast<double>(value));
    ASSERT_EQ(encode(DType::f32, static_cast<double>(value)), code);
  }
}

// Doubles where a rounding can be wrong: between two fp16 numbers, near the tie, with a last bit far below.
double awkward(std::mt19937_64& random) {
  const double low = decode(DType::f16, random() & 0x7BFF), high = decode(DType::f16, (random() & 0x7BFF) | 1);
  const double place = std::ldexp(1.0, std::max(std::ilogb(low + 0x1p-30), -14) - 10);
  const double x = random() % 2 ? low + place / 2
                                : (random() % 2 ? low + place * static_cast<double>(random() % 1024) / 1024 : high);
  const double tail = static_cast<double>(static_cast<int>(random() % 3) - 1) * std::fabs(x) * 0x1p-50;
  return random() % 2 ? x + tail : -(x + tail);
}

TEST(DType, Fp16AgreesWithTheCompilers) {
#if defined(__FLT16_MANT_DIG__) && defined(__SSE2__) && !defined(__clang__)
  __extension__ using Half = _Float16;
  for (uint32_t code = 0; code < 65536; ++code) {
    const Half half = std::bit_cast<Half>(static_cast<uint16_t>(code));
    const double value = decode(DType::f16, code);
    if (std::isnan(value)) {
      ASSERT_NE(half, half);
    } else {
      ASSERT_EQ(value, static_cast<double>(half));
    }
  }
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    const double x = awkward(random);
    ASSERT_EQ(encode(DType::f16, x), std::bit_cast<uint16_t>(static_cast<Half>(x))) << std::hexfloat << x;
  }
#else
  GTEST_SKIP() << "this compiler has no _Float16 for this target";
#endif
}

#if defined(__x86_64__)
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && ((c >> 29) & 1);
}
__attribute__((target("avx,f16c"))) uint16_t to_half(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set1_ps(x), _MM_FROUND_TO_NEAREST_INT), 0));
}
__attribute__((target("avx,f16c"))) float from_half(uint16_t code) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_set1_epi16(static_cast<short>(code))));
}
#endif

TEST(DType, Fp16AgreesWithTheProcessors) {
#if defined(__x86_64__)
  if (!has_f16c()) GTEST_SKIP() << "this processor has no F16C";
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto value = static_cast<float>(decode(DType::f16, code));
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(from_half(static_cast<uint16_t>(code))));
  }
  std::mt19937_64 random(4);
  for (int i = 0; i < 4'000'000; ++i) {
    const auto x = i % 2 ? static_cast<float>(awkward(random)) : std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    ASSERT_EQ(encode(DType::f16, static_cast<double>(x)), to_half(x)) << std::hexfloat << x;
  }
#else
  GTEST_SKIP() << "F16C exists only on x86-64";
#endif
}

TEST(DType, ArraysAreLoadedAndStoredByElement) {
  std::array<uint16_t, 3> array{0, 0, 0};
  store(DType::f16, array.data(), 1, -2.0);
  EXPECT_EQ(array[1], 0xC000);
  EXPECT_EQ(array[0] | array[2], 0);
  EXPECT_EQ(load(DType::f16, array.data(), 1), -2);
}

TEST(DType, PackedElementsKeepTheirNeighbours) {
  std::array<uint8_t, 3> array{0x52, 0xFF, 0x00};
  EXPECT_EQ(load(DType::e2m1, array.data(), 0), 1) << "the even index is in the low half";
  EXPECT_EQ(load(DType::e2m1, array.data(), 1), 3);
  store(DType::e2m1, array.data(), 2, 0.5);
  EXPECT_EQ(array[1], 0xF1);
  store(DType::e2m1, array.data(), 3, -0.5);
  EXPECT_EQ(array[1], 0x91);
  EXPECT_EQ(array[0], 0x52);
  EXPECT_EQ(array[2], 0x00);
}

}  // namespace
}  // namespace halfmark::kernels
