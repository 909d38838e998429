// Every instruction set of convert.cpp against the definition, one element at a time: round_to, encode and decode.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/number/convert.h"

namespace halfmark::kernels {
namespace {

using convert_detail::Path;

constexpr Rounding kEveryRounding[] = {Rounding::near_even, Rounding::toward_zero, Rounding::near_away,
                                       Rounding::stochastic};
constexpr NoiseStream kNoise{.seed = 0x123456789ABCDEF, .first = 5};

// The formats of the table, and others at the limits of what the loops support.
std::vector<Format> many_formats() {
  std::vector<Format> all(formats().begin(), formats().end());
  for (const Format& more : {Format{"e8m22", 8, 22}, Format{"e8m1", 8, 1}, Format{"e7m22", 7, 22}, Format{"e7m1", 7, 1},
                             Format{"e2m1", 2, 1}, Format{"e2m22", 2, 22}, Format{"e5m10n", 5, 10, Specials::nan_only}})
    all.push_back(more);
  return all;
}

#if HALFMARK_SANITIZED
constexpr int kBitStep = 4;  // only for what the sanitizers detect; release builds compare the results
#else
constexpr int kBitStep = 1;
#endif

// Every sign and exponent with: every single fraction bit and its neighbours, runs of ones from either end, and
// `random` uniform fractions. Covers every tie of every format, every subnormal range, zeros, infinities and NaNs.
std::vector<float> sample(int random) {
  std::vector<uint32_t> fractions{0, 0x7FFFFF};
  for (uint32_t bit = 1; bit < 1u << 23; bit <<= kBitStep)
    for (const uint32_t fraction : {bit, bit - 1, bit + 1, 0x800000 - bit, 0x7FFFFF - bit, bit | bit << 1})
      fractions.push_back(fraction & 0x7FFFFF);
  std::mt19937 draw(3);
  std::vector<float> values;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t fraction : fractions) values.push_back(std::bit_cast<float>(top << 23 | fraction));
    for (int i = 0; i < random / kBitStep; ++i)
      values.push_back(std::bit_cast<float>(top << 23 | static_cast<uint32_t>(draw() & 0x7FFFFF)));
  }
  return values;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected, const std::vector<float>& from,
                      const std::string& what) {
  if (!std::memcmp(got.data(), expected.data(), got.size() * sizeof(float))) return;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << ", element " << i << ": " << std::hexfloat << from[i] << " to " << got[i] << ", not " << expected[i];
}

class ConvertPaths : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!convert_detail::has(GetParam())) GTEST_SKIP() << "this CPU has no " << convert_detail::name_of(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(All, ConvertPaths, testing::Values(Path::scalar, Path::avx2, Path::avx512),
                         [](const auto& param_info) -> std::string {
                           return param_info.param == Path::scalar ? "Scalar"
                                  : param_info.param == Path::avx2 ? "Avx2"
                                                                   : "Avx512";
                         });

TEST_P(ConvertPaths, RoundAsRoundTo) {
  const std::vector<float> values = sample(GetParam() == Path::scalar ? 0 : 50);  // slow, and nearly the definition
  for (const Format& format : many_formats())
    for (const Rounding rounding : kEveryRounding) {
      std::vector<float> expected(values.size()), got(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        expected[i] = std::isnan(values[i])
                          ? values[i]
                          : static_cast<float>(round_to(format, static_cast<double>(values[i]), rounding, nullptr,
                                                        rounding_noise(kNoise.seed, kNoise.first + i)));
      convert_detail::round_array(GetParam(), format, values.data(), got.data(), values.size(), rounding, kNoise);
      expect_same_bits(got, expected, values, std::string(format.name) + " " + std::string(name_of(rounding)));
      got = values;
      convert_detail::round_array(GetParam(), format, got.data(), got.data(), got.size(), rounding, kNoise);
      expect_same_bits(got, expected, values, std::string(format.name) + " in place");
    }
}

void expect_as_scalar(Path path, DType from, const void* source, DType to, size_t count, Rounding rounding) {
  std::vector<unsigned char> fast(bytes_for(to, count)), plain(fast.size());
  convert_detail::convert(path, from, source, to, fast.data(), count, rounding, kNoise);
  convert_detail::convert_scalar(from, source, to, plain.data(), count, rounding, kNoise);
  if (fast == plain) return;
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(load_code(to, fast.data(), i), load_code(to, plain.data(), i))
        << name_of(from) << " to " << name_of(to) << " " << name_of(rounding) << ", element " << i << ": "
        << std::hexfloat << load(from, source, i) << " to " << load(to, fast.data(), i) << ", not "
        << load(to, plain.data(), i);
}

TEST_P(ConvertPaths, FloatsBecomeWhatEncodeSays) {
  const std::vector<float> values = sample(50);
  for (const DType to : dtypes())
    for (const Rounding rounding : kEveryRounding)
      expect_as_scalar(GetParam(), DType::f32, values.data(), to, values.size(), rounding);
}

TEST_P(ConvertPaths, EveryNarrowCodeBecomesWhatDecodeAndEncodeSay) {
  for (const DType from : dtypes()) {
    if (bits_of(from) > 16) continue;
    const size_t count = size_t{1} << bits_of(from);
    std::vector<unsigned char> codes(bytes_for(from, count));
    for (size_t i = 0; i < count; ++i) store_code(from, codes.data(), i, i);
    for (const DType to : dtypes())
      for (const Rounding rounding : kEveryRounding)
        expect_as_scalar(GetParam(), from, codes.data(), to, count, rounding);
  }
}

TEST_P(ConvertPaths, DoublesAreRoundedOnce) {
  std::vector<double> values;
  for (const float x : sample(10)) {
    const auto y = static_cast<double>(x);
    for (const double z : {y, std::nextafter(y, 0.0), std::nextafter(y, 1e308), y * (1 + 0x1p-30)}) values.push_back(z);
  }
  for (const double x : {1e39, -1e39, 1e308, 1e-46, -1e-46, 5e-324, 0x1.ffffffp127, 0x1.fffffefp127, 0x1p-150})
    values.push_back(x);
  for (const DType to : dtypes())
    for (const Rounding rounding : kEveryRounding)
      expect_as_scalar(GetParam(), DType::f64, values.data(), to, values.size(), rounding);
}

TEST_P(ConvertPaths, AnySplitGivesTheSameBits) {
  const std::vector<float> values = sample(0);
  for (const Format& format : {kFp16, kBf16, kE4m3}) {
    std::vector<float> whole(values.size()), pieces = values;
    convert_detail::round_array(GetParam(), format, values.data(), whole.data(), values.size(), Rounding::stochastic,
                                kNoise);
    for (size_t begin = 0, length = 0; begin < values.size(); begin += length) {
      length = std::min(values.size() - begin, begin % 331 + 1);
      convert_detail::round_array(GetParam(), format, &pieces[begin], &pieces[begin], length, Rounding::stochastic,
                                  kNoise.from(begin));
    }
    expect_same_bits(pieces, whole, values, std::string(format.name) + " in pieces");
  }
}

TEST_P(ConvertPaths, ShortAndUnalignedArraysLeaveTheirNeighboursAlone) {
  const std::vector<float> values = sample(0);
  for (size_t count = 0; count < 150; ++count)
    for (size_t start = 0; start < 5; ++start)
      for (const Rounding rounding : {Rounding::near_even, Rounding::stochastic}) {
        std::vector<float> got(160, 1.0f / 3), expected = got;
        const float* source = values.data() + 17000 + start;
        convert_detail::round_array(GetParam(), kFp16, source, &got[start], count, rounding, kNoise);
        convert_detail::round_array_scalar(kFp16, source, &expected[start], count, rounding, kNoise);
        ASSERT_EQ(got, expected) << count << " from " << start;
        std::vector<uint8_t> bytes(160, 0xAA), expected_bytes = bytes;
        convert_detail::convert(GetParam(), DType::f32, source, DType::e5m2, &bytes[start], count, rounding, kNoise);
        convert_detail::convert_scalar(DType::f32, source, DType::e5m2, &expected_bytes[start], count, rounding,
                                       kNoise);
        ASSERT_EQ(bytes, expected_bytes) << count << " from " << start;
      }
}

// Long arrays are processed in tiles and with streaming stores, with aligned and unaligned targets.
TEST_P(ConvertPaths, LongArraysAreNoDifferent) {
  if (GetParam() == Path::scalar) GTEST_SKIP() << "the scalar path treats long arrays like short ones";
  const size_t count = (size_t{16} << 20) / sizeof(float) + 12345;
  std::vector<float> values(count), target(count + 8);
  for (size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(i * 2654435761u));  // Knuth's multiplier: any bits
  for (const Rounding rounding : {Rounding::near_even, Rounding::stochastic}) {
    std::vector<float> expected = values;
    for (size_t begin = 0; begin < count; begin += 1000)
      convert_detail::round_array(GetParam(), kE4m3, &expected[begin], &expected[begin],
                                  std::min<size_t>(1000, count - begin), rounding, kNoise.from(begin));
    for (const size_t start : {0, 1, 2, 4}) {
      convert_detail::round_array(GetParam(), kE4m3, values.data(), &target[start], count, rounding, kNoise);
      ASSERT_EQ(std::memcmp(&target[start], expected.data(), count * sizeof(float)), 0) << start;
    }
  }
}

// Below 2^-32 of a last place the low half of the noise decides,
// once in 2^32 times: this test searches for those cases.
TEST_P(ConvertPaths, NoiseIsComparedToItsLastBit) {
  int ups = 0, downs = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t noise = rounding_noise(kNoise.seed, i);
    if (noise >> 32 >= 1u << 22) continue;
    const auto x = static_cast<float>(std::ldexp(static_cast<double>(noise >> 32) + 0.5, -32 - 24));
    std::vector<float> values(i % 64 + 1, 0.0f);
    values.back() = x;
    convert_detail::round_array(GetParam(), kFp16, values.data(), values.data(), values.size(), Rounding::stochastic,
                                {kNoise.seed, i - i % 64});
    const bool up = (noise & 0xFFFFFFFF) < 0x80000000;
    ASSERT_EQ(values.back(), up ? 0x1p-24f : 0.0f) << i;
    ++(up ? ups : downs);
  }
  EXPECT_GT(ups, 20);
  EXPECT_GT(downs, 20);
}

// All 2^32 floats, if HALFMARK_LONG is set.
class SlowEveryFloat : public testing::TestWithParam<Format> {};

void compare_range(const Format& format, uint64_t begin, uint64_t end, std::string& difference) {
  constexpr size_t kPart = 1 << 16;
  std::vector<float> values(kPart), negative(kPart), expected(kPart), got(kPart);
  for (uint64_t first = begin; first < end && difference.empty(); first += kPart)
    for (const Rounding rounding : kEveryRounding) {
      const bool stochastic = rounding == Rounding::stochastic;
      if (stochastic && first / kPart % 16) continue;  // its definition takes longer
      for (size_t i = 0; i < kPart; ++i) {
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i));
        negative[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i) | 0x80000000);
      }
      convert_detail::round_array_scalar(format, values.data(), expected.data(), kPart, rounding, kNoise);
      for (const bool minus : {false, true}) {
        if (minus)
          for (float& x : expected) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) | 0x80000000);
        for (const Path path : {Path::avx2, Path::avx512}) {
          if (!convert_detail::has(path)) continue;
          convert_detail::round_array(path, format, (minus ? negative : values).data(), got.data(), kPart, rounding,
                                      kNoise);
          if (std::memcmp(got.data(), expected.data(), kPart * sizeof(float)))
            difference = std::string(convert_detail::name_of(path)) + " " + std::string(name_of(rounding)) +
                         " in the floats from code " + std::to_string(first);
        }
      }
    }
}

TEST_P(SlowEveryFloat, IsRoundedAsRoundTo) {
  if (!std::getenv("HALFMARK_LONG")) GTEST_SKIP() << "all 2^32 floats take minutes: set HALFMARK_LONG=1";
  if (!convert_detail::has(Path::avx2)) GTEST_SKIP() << "this CPU has the scalar path only";
  constexpr uint64_t kPositive = uint64_t{1} << 31;
  std::string low, high;
  std::thread helper([&] { compare_range(GetParam(), 0, kPositive / 2, low); });
  compare_range(GetParam(), kPositive / 2, kPositive, high);
  helper.join();
  EXPECT_EQ(low, "");
  EXPECT_EQ(high, "");
}

INSTANTIATE_TEST_SUITE_P(All, SlowEveryFloat, testing::Values(kFp16, kBf16, kTf32, kE4m3, kE5m2),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace halfmark::kernels
