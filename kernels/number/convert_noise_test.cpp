// The noise of stochastic rounding: against published vectors, and against the statistics that it must have.
#include "kernels/number/convert_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/number/convert.h"

namespace halfmark::kernels {
namespace {

TEST(Noise, IsBuiltFromTheAdvancedEncryptionStandard) {
  // FIPS 197, figure 7, and round 1 of appendix B: the state after MixColumns.
  EXPECT_EQ(convert_detail::kAesSubstitution[0x53], 0xED);
  EXPECT_EQ(convert_detail::kAesSubstitution[0x00], 0x63);
  EXPECT_EQ(convert_detail::kAesSubstitution[0xFF], 0x16);
  const convert_detail::Bytes start{0x19, 0x3d, 0xe3, 0xbe, 0xa0, 0xf4, 0xe2, 0x2b,
                                    0x9a, 0xc6, 0x8d, 0x2a, 0xe9, 0xf8, 0x48, 0x08};
  const convert_detail::Bytes mixed{0x04, 0x66, 0x81, 0xe5, 0xe0, 0xcb, 0x19, 0x9a,
                                    0x48, 0xf8, 0xd3, 0x7a, 0x28, 0x06, 0x26, 0x4c};
  EXPECT_EQ(convert_detail::aes_round(start, false), mixed);
}

TEST(Noise, GivesThePublishedVectorsOfArs) {
  // Random123's own test of ars1xm128i: seven rounds, key 1, counters 1 and 256; bytes in memory order.
  using convert_detail::ars;
  EXPECT_EQ(std::bit_cast<convert_detail::Bytes>(ars({1, 0}, {1, 0}, 7)),
            (convert_detail::Bytes{0x2b, 0x16, 0x23, 0x35, 0x0c, 0xd2, 0x14, 0xdc, 0x77, 0x40, 0x18, 0x79, 0x93, 0x41,
                                   0x18, 0x72}));
  EXPECT_EQ(std::bit_cast<convert_detail::Bytes>(ars({256, 0}, {1, 0}, 7)),
            (convert_detail::Bytes{0x2d, 0xe6, 0xb6, 0x6f, 0xa4, 0x61, 0xb6, 0x68, 0xf3, 0x80, 0x12, 0x6f, 0x32, 0xb9,
                                   0xcd, 0x22}));
}

TEST(Noise, EveryBitIsFairAndNoTwoGoTogether) {
  constexpr size_t kCount = 1 << 16;
  std::vector<uint64_t> words(kCount);
  for (size_t i = 0; i < kCount; ++i) words[i] = rounding_noise(11, i);
  // n tosses of a fair coin show n / 2 heads with standard deviation sqrt(n) / 2. 496 pairs are checked; five
  // deviations are exceeded once in 1.7 million.
  const double bound = 5 * std::sqrt(static_cast<double>(kCount)) / 2;
  for (int a = 32; a < 64; ++a)
    for (int b = 32; b <= a; ++b) {
      double heads = 0;
      for (const uint64_t word : words) heads += static_cast<double>((a == b ? word >> a : word >> a ^ word >> b) & 1);
      EXPECT_NEAR(heads, kCount / 2.0, bound) << "bits " << a << " and " << b;
    }
}

// Whether element i of an array of equal numbers was rounded up: +1 or -1, minus the mean.
std::vector<double> ups(const Format& format, double fraction, NoiseStream noise, size_t count) {
  const double place = std::ldexp(1.0, -format.fraction_bits);
  std::vector<float> values(count, static_cast<float>(1 + fraction * place));
  round_array(format, values.data(), values.data(), count, Rounding::stochastic, noise);
  std::vector<double> result(count);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(values[i] == 1 || values[i] == static_cast<float>(1 + place));
    result[i] = values[i] == 1 ? -fraction : 1 - fraction;
  }
  return result;
}

TEST(StochasticArrays, IsUnbiased) {
  constexpr size_t kCount = 1 << 20;
  for (const Format& format : {kFp16, kBf16, kTf32, kE4m3, kE5m2})
    for (const double fraction : {0.5, 0.25, 0.875, 1.0 / 128, 1 - 1.0 / 1024}) {
      double sum = 0;
      for (const double up : ups(format, fraction, {.seed = 3}, kCount)) sum += up;
      // The sum of n Bernoulli variables minus their means has standard deviation sqrt(n f (1 - f)).
      const double deviation = std::sqrt(static_cast<double>(kCount) * fraction * (1 - fraction));
      EXPECT_LT(std::fabs(sum), 5 * deviation) << format.name << " " << fraction;
    }
}

TEST(StochasticArrays, IsUnbiasedFarBelowTheSmallestNumber) {
  constexpr size_t kCount = 1 << 20;
  std::vector<float> values(kCount, 0x1.8p-34f);  // 1.5 2^-10 of fp16's smallest number
  round_array(kFp16, values.data(), values.data(), kCount, Rounding::stochastic, {.seed = 4});
  double went_up = 0;
  for (const float x : values) went_up += x != 0;
  const double p = 1.5 / 1024, n = kCount;
  EXPECT_NEAR(went_up, n * p, 5 * std::sqrt(n * p * (1 - p)));
}

TEST(StochasticArrays, NeighboursAndSeedsDoNotGoTogether) {
  constexpr size_t kCount = 1 << 20;
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b, size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < kCount; ++i) sum += a[i] * b[i + lag];
    return sum / static_cast<double>(kCount - lag);
  };
  for (const double fraction : {0.5, 0.125}) {
    const std::vector<double> first = ups(kBf16, fraction, {.seed = 8}, kCount);
    // Products of independent variables with variance f (1 - f) have mean 0 and standard deviation f (1 - f).
    const double bound = 5 * fraction * (1 - fraction) / std::sqrt(static_cast<double>(kCount) - 4096);
    for (const size_t lag : {1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 1024, 4096})
      EXPECT_LT(std::fabs(correlation(first, first, lag)), bound) << "lag " << lag;
    for (const uint64_t seed : {uint64_t{9}, uint64_t{0}, uint64_t{8} << 32, uint64_t{1} << 63 | 8})
      for (const size_t lag : {0, 1, 4})
        EXPECT_LT(std::fabs(correlation(first, ups(kBf16, fraction, {.seed = seed}, kCount), lag)), bound) << seed;
  }
}

}  // namespace
}  // namespace halfmark::kernels
