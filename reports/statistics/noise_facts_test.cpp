// The limits that follow from the constants of noise_facts.h, on simulated shifts.
#include "reports/statistics/noise_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace halfmark::reports {
namespace {

// Three hundred cases that moved between two days by chance: the largest is beyond this limit in 1 % of the runs.
TEST(NoiseFacts, LimitTheLargestShiftOfAllCases) {
  EXPECT_NEAR(largest_by_chance(1, 1), normal_quantile_above(0.01), 1e-15);
  EXPECT_EQ(largest_by_chance(1, 0), largest_by_chance(1, 1));
  std::mt19937_64 random(1);
  std::normal_distribution<> shift(0, spread_between_two(kDaySpread));
  constexpr int runs_made = 2000, case_count = 300;
  const double limit = largest_by_chance(spread_between_two(kDaySpread), case_count);
  int beyond = 0;
  for (int run = 0; run < runs_made; ++run) {
    double largest = 0;
    for (int i = 0; i < case_count; ++i) largest = std::max(largest, shift(random));
    beyond += largest > limit;
  }
  EXPECT_GE(beyond, 7);  // 20 expected; three standard deviations are 13
  EXPECT_LE(beyond, 33);
}

}  // namespace
}  // namespace halfmark::reports
