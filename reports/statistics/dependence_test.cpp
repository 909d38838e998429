// The estimated dependence of simulated runs, and the errors of their means, compared with what was simulated.
#include "reports/statistics/dependence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "reports/statistics/noise_testing.h"

namespace halfmark::reports {
namespace {

// Pairs of series of one case with this dependence.
std::vector<std::array<std::vector<double>, 2>> pairs_of_series(double lag_one, size_t runs, int pairs) {
  std::vector<std::array<std::vector<double>, 2>> all;
  for (int i = 0; i < pairs; ++i) {
    SimulatedRuns machine({.spread = 0.01, .lag_one = lag_one}, static_cast<uint64_t>(i));
    std::vector<double> base = machine.next(runs);
    machine.next_day();
    all.push_back({base, machine.next(runs)});
  }
  return all;
}

TEST(Dependence, IsEstimatedWithoutBias) {
  for (const double truth : {0.0, 0.5, 0.8}) {
    double sum = 0;
    for (const auto& one : pairs_of_series(truth, 24, 2000)) sum += dependence_of(one).lag_one;
    EXPECT_NEAR(sum / 2000, truth, 0.03) << truth;
  }
}

TEST(Dependence, HasAnUpperBoundThatIsRarelyTooLow) {
  for (const double truth : {0.0, 0.5, 0.8, 0.9}) {
    int too_low = 0, evident = 0;
    for (const auto& one : pairs_of_series(truth, 24, 1000)) {
      too_low += dependence_of(one).upper(0.05) < truth;
      evident += dependence_of(one).is_evident(0.05);
    }
    EXPECT_LE(too_low, 80) << truth;  // 50 expected for independent runs; three standard deviations are 21
    EXPECT_LE(truth > 0 ? 0 : evident, 71) << "50 expected";
    EXPECT_GE(truth < 0.8 ? 1000 : evident, 990) << truth;
  }
}

TEST(Dependence, IsNotHiddenByOutliers) {
  for (auto& one : pairs_of_series(0.9, 48, 50)) {
    const double before = dependence_of(one).lag_one;
    one[0][10] += 0.5, one[1][30] += 0.5;
    EXPECT_GT(dependence_of(one).lag_one, before - 0.35);
  }
}

TEST(Dependence, IsUnknownForShortSeries) {
  const std::vector<std::vector<double>> series{{1, 2, 3, 4, 5, 6, 7}};
  EXPECT_EQ(dependence_of(series).lag_one, 0);
  EXPECT_EQ(dependence_of(series).error, 1);
}

// The number for 24 runs at 0.9 was summed by hand: 24 / (1 + 2 * sum of (1 - k / 24) 0.9^k).
TEST(EffectiveRuns, AreFewIfEachRunDependsOnTheLast) {
  EXPECT_EQ(effective_runs(24, 0), 24);
  EXPECT_NEAR(effective_runs(1000, 0.5), 1000.0 / 3, 1);
  EXPECT_NEAR(effective_runs(24, 0.9), 1.98376, 1e-5);
  EXPECT_EQ(effective_runs(24, -0.5), 24);
  EXPECT_EQ(effective_runs(1, 0.9), 1);
}

TEST(DependentMean, HasTheErrorThatTheMeansReallyHave) {
  for (const double lag_one : {0.0, 0.5, 0.8}) {
    double squares = 0, variances = 0;
    const auto all = pairs_of_series(lag_one, 48, 2000);
    for (const auto& [base, found] : all) {
      double mean = 0;
      for (const double x : base) mean += x / 48;
      squares += mean * mean / 2000;
      variances += std::pow(dependent_mean(base, lag_one).error, 2) / 2000;
    }
    EXPECT_NEAR(std::sqrt(variances / squares), 1, 0.08) << lag_one;
  }
}

TEST(DependentMean, IsUnknownIfTheRunsAreWorthOne) {
  const std::vector<double> series(24, 1.0);
  EXPECT_TRUE(std::isinf(dependent_mean(series, 0.99).error));
  const DependentShift shift = dependent_shift(series, series, 0.99);
  EXPECT_EQ(shift.p(1, 0, 0), 1);
  EXPECT_TRUE(std::isinf(shift.upper(0)));
  EXPECT_TRUE(std::isinf(shift.reach(0.95, 0.03)));
}

TEST(DependentShift, IsTheTTestOfWelchForIndependentRuns) {
  const std::vector<double> a{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, b{3, 5, 4, 6, 8, 7, 10, 9, 11, 12};
  const DependentShift shift = dependent_shift(a, b, 0);
  EXPECT_NEAR(shift.error, std::sqrt((82.5 / 9 + 82.5 / 9) / 10), 1e-12);
  EXPECT_NEAR(shift.freedom, 18, 1e-9);
  EXPECT_NEAR(shift.p(2, 0, 0), upper_t_p(2 / shift.error, 18), 1e-15);
  EXPECT_LT(shift.p(2, 0, 0), shift.p(2, 0, 1)) << "a known spread is part of the error";
  EXPECT_NEAR(shift.p(200, 0, 100), upper_normal_p(2), 1e-3);
}

TEST(WithoutOutliers, KeepsASecondModeAndDrawsInRareValues) {
  SimulatedRuns machine({.spread = 0.005, .slow_clock = 0.2}, 3);
  std::vector<double> series = machine.next(200);
  EXPECT_EQ(without_outliers(series), series);
  series[7] = 3;
  EXPECT_LT(without_outliers(series)[7], 0.2);
}

}  // namespace
}  // namespace halfmark::reports
