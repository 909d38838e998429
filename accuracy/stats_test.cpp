// Compares error statistics with numbers computed by hand.
#include "accuracy/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "accuracy/exponents.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

double count_at(const ErrorStats& stats, double edge) {
  for (size_t i = 0; i < stats.ulp_edges.size(); ++i)
    if (stats.ulp_edges[i] == edge) return stats.ulp_counts[i];
  return 0;
}

TEST(ErrorStats, AgreeWithNumbersComputedByHand) {
  // Errors 0, 0.5, -1, 0 on references 1, 2, -4, 0: the sum of squares is 1.25, of the references 21.
  const ErrorStats stats = error_stats(std::vector<double>{1, 2.5, -5, 0}, std::vector<double>{1, 2, -4, 0}, kFp16);
  EXPECT_DOUBLE_EQ(stats.nmse, 1.25 / 21);
  EXPECT_DOUBLE_EQ(stats.max_relative, 0.25);
  EXPECT_DOUBLE_EQ(stats.cosine, (1 + 5 + 20) / std::sqrt(21 * (1 + 6.25 + 25)));
  EXPECT_DOUBLE_EQ(stats.bias, (-0.5 / 4) / std::sqrt(21.0 / 4));
  EXPECT_EQ(stats.zeroed, 0);
  EXPECT_EQ(stats.nonfinite, 0);
}

TEST(ErrorStats, OfEqualTensorsAreZero) {
  const std::vector<double> values = {1, -2, 0, 3e-5};
  const ErrorStats stats = error_stats(values, values, kFp16);
  EXPECT_EQ(stats.nmse, 0);
  EXPECT_EQ(stats.max_relative, 0);
  EXPECT_DOUBLE_EQ(stats.cosine, 1);
  EXPECT_EQ(stats.bias, 0);
  EXPECT_EQ(count_at(stats, 0), 4);
  EXPECT_EQ(stats.subnormal, 0.25);  // 3e-5 < 2^-14
}

TEST(ErrorStats, UlpsAreThoseOfTheFormatAtTheReference) {
  // fp16 in [1, 2): ulp 2^-10. In [4, 8): 2^-8. Below 2^-14: 2^-24.
  EXPECT_EQ(ulp_at(kFp16, 1.5), 0x1p-10);
  EXPECT_EQ(ulp_at(kFp16, -4), 0x1p-8);
  EXPECT_EQ(ulp_at(kFp16, 0), 0x1p-24);
  EXPECT_EQ(ulp_at(kFp16, 0x1p-20), 0x1p-24);
  EXPECT_EQ(ulp_at(kFp16, 1e9), 0x1p5);  // top binade
  const ErrorStats stats = error_stats(std::vector<double>{1, 1 + 0x1p-11, 1 + 0x1p-10, 1 + 3 * 0x1p-10, kInf},
                                       std::vector<double>{1, 1, 1, 1, 1}, kFp16);
  EXPECT_EQ(count_at(stats, 0), 1);
  EXPECT_EQ(count_at(stats, 0.5), 1);
  EXPECT_EQ(count_at(stats, 1), 1);
  EXPECT_EQ(count_at(stats, 2), 0);
  EXPECT_EQ(count_at(stats, 4), 1);
  EXPECT_EQ(count_at(stats, kInf), 1);
  EXPECT_EQ(stats.ulp_edges.size(), stats.ulp_counts.size());
}

TEST(ErrorStats, CountValuesThatBecameZeroButNotTheNoiseOfTheReference) {
  // The last reference is 2^-60 times the largest: for an fp64 run it is rounding noise.
  const ErrorStats stats =
      error_stats(std::vector<double>{0, 0, 1, 0}, std::vector<double>{1e-9, 0, 1, 0x1p-60}, kFp16);
  EXPECT_EQ(stats.zeroed, 0.25);
}

TEST(ErrorStats, IgnoreRelativeErrorsBelowTheLeastSubnormal) {
  const ErrorStats stats = error_stats(std::vector<double>{0, 1}, std::vector<double>{0x1p-26, 1}, kFp16);
  EXPECT_EQ(stats.max_relative, 0);
  EXPECT_EQ(error_stats(std::vector<double>{0, 1}, std::vector<double>{0x1p-24, 1}, kFp16).max_relative, 1);
}

TEST(ErrorStats, JudgeScaledGradientsAsStored) {
  // 2^-20 is subnormal in fp16; under a loss scale of 2^16 it was stored as 2^-4.
  const std::vector<double> gradient = {0x1p-20};
  EXPECT_EQ(error_stats(gradient, gradient, kFp16).subnormal, 1);
  EXPECT_EQ(error_stats(gradient, gradient, kFp16, 65536).subnormal, 0);
}

TEST(ErrorStats, DoNotHideNonFiniteValues) {
  const ErrorStats infinite = error_stats(std::vector<double>{kInf, 1}, std::vector<double>{2, 1}, kFp16);
  EXPECT_EQ(infinite.nmse, kInf);
  EXPECT_EQ(infinite.max_relative, kInf);
  EXPECT_EQ(infinite.infinite, 0.5);
  const ErrorStats nan = error_stats(std::vector<double>{1, kNan, 1}, std::vector<double>{1, 1, 1}, kFp16);
  EXPECT_TRUE(std::isnan(nan.nmse));
  EXPECT_TRUE(std::isnan(nan.max_relative));
  EXPECT_TRUE(std::isnan(nan.cosine));
  EXPECT_DOUBLE_EQ(nan.nan, 1.0 / 3);
  EXPECT_DOUBLE_EQ(nan.nonfinite, 1.0 / 3);
}

TEST(ErrorStats, RefuseTensorsOfDifferentSize) {
  EXPECT_THROW(error_stats(std::vector<double>{1}, std::vector<double>{1, 2}, kFp16), Error);
}

TEST(Exponents, CountBinadesAndTheShareBelowAnExponent) {
  Exponents exponents;
  exponents.add(std::vector<double>{1, 1.99, 0, -0x1p-26, 0x1p-25, kInf, kNan, 8});
  EXPECT_EQ(exponents.counts.at(0), 2);
  EXPECT_EQ(exponents.highest_exponent(), 3);
  EXPECT_EQ(exponents.lowest_exponent(), -26);
  EXPECT_EQ(exponents.zero, 1);
  EXPECT_EQ(exponents.nonfinite, 2);
  EXPECT_EQ(exponents.largest, 8);
  EXPECT_EQ(exponents.share_below(-25), 1.0 / 8);
  EXPECT_EQ(exponents.share_below(-24), 2.0 / 8);
}

TEST(Headroom, IsTheDistanceToOverflowInBits) {
  EXPECT_DOUBLE_EQ(headroom(kFp16, 65504), 0);
  EXPECT_DOUBLE_EQ(headroom(kFp16, 65504.0 / 1024), 10);
  EXPECT_LT(headroom(kFp16, 70000), 0);
  EXPECT_EQ(headroom(kFp16, 0), kInf);
}

}  // namespace
}  // namespace halfmark::accuracy
