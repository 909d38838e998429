// Rank correlation and standard errors on numbers worked out with SciPy and by hand.
#include "accuracy/experiments/ranking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

// from scipy.stats import kendalltau; kendalltau([1, 2, 2, 3, 5], [1, 3, 2, 2, 4])   # 0.6666666666666667
TEST(KendallTau, IsThatOfSciPyWithTies) {
  EXPECT_NEAR(kendall_tau(std::vector<double>{1, 2, 2, 3, 5}, std::vector<double>{1, 3, 2, 2, 4}), 2.0 / 3, 1e-12);
  EXPECT_NEAR(kendall_tau(std::vector<double>{12, 2, 1, 12, 2}, std::vector<double>{1, 4, 7, 1, 0}),
              -0.47140452079103173, 1e-12);  // the example of SciPy's manual
}

TEST(KendallTau, SeesASwapOfNeighboursAndTheReverse) {
  const std::vector<double> a = {1, 2, 3, 4, 5};
  EXPECT_EQ(kendall_tau(a, a), 1);
  EXPECT_EQ(kendall_tau(a, std::vector<double>{5, 4, 3, 2, 1}), -1);
  EXPECT_NEAR(kendall_tau(a, std::vector<double>{1, 2, 4, 3, 5}), 0.8, 1e-12) << "one of ten pairs: (9 - 1) / 10";
}

TEST(KendallTau, IsNaNWhereThereIsNoOrder) {
  const std::vector<double> a = {1, 2, 3};
  EXPECT_TRUE(std::isnan(kendall_tau(a, std::vector<double>{7, 7, 7})));
  EXPECT_TRUE(std::isnan(kendall_tau(a, std::vector<double>{1, std::numeric_limits<double>::quiet_NaN(), 3})));
  EXPECT_THROW(kendall_tau(a, std::vector<double>{1, 2}), Error);
}

// Taus 1, 1/3 and 1/3. Without the third ranking the mean is 1, else 1/3: sqrt(2/3 ((4/9)^2 + 2 (2/9)^2)) = 4/9.
TEST(KendallTau, OfPairsHasTheErrorOfTheJackknife) {
  const std::vector<std::vector<double>> rankings = {{1, 2, 3}, {1, 2, 3}, {1, 3, 2}};
  const TauOfPairs found = kendall_tau_of_pairs(rankings);
  EXPECT_NEAR(found.mean, 5.0 / 9, 1e-12);
  EXPECT_NEAR(found.least, 1.0 / 3, 1e-12);
  ASSERT_TRUE(found.error);
  EXPECT_NEAR(*found.error, 4.0 / 9, 1e-12);
  EXPECT_FALSE(kendall_tau_of_pairs(std::span(rankings).first(2)).error) << "one pair";
  EXPECT_THROW(kendall_tau_of_pairs(std::span(rankings).first(1)), Error);
  const TauOfPairs without_order = kendall_tau_of_pairs(std::vector<std::vector<double>>{{1, 2}, {2, 1}, {3, 3}});
  EXPECT_TRUE(std::isnan(without_order.least) && std::isnan(without_order.mean) && !without_order.error);
}

TEST(Ranking, TheLeastIsTheFirstOfEqualOnesAndNoNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(place_of_least(std::vector<double>{nan, 3, 1, 1, nan}), 2u);
  EXPECT_EQ(place_of_least(std::vector<double>{nan, nan}), 0u);
}

TEST(SampleMean, HasTheStandardErrorOfTheSample) {
  const SampleMean found = sample_mean(std::vector<double>{1, 2, 3, 4});  // deviation sqrt(5 / 3)
  EXPECT_NEAR(found.mean, 2.5, 1e-12);
  EXPECT_NEAR(found.deviation, std::sqrt(5.0 / 3), 1e-12);
  EXPECT_NEAR(found.error, std::sqrt(5.0 / 3) / 2, 1e-12);
  EXPECT_THROW(sample_mean({}), Error);
}

TEST(SampleMean, AShareOfZeroIsNotCertain) {
  EXPECT_NEAR(share_error(0, 100), std::sqrt(1.0 / 102 * 101 / 102 / 100), 1e-12);
  EXPECT_NEAR(share_error(50, 100), 0.05, 1e-12);
}

}  // namespace
}  // namespace halfmark::accuracy
