// Tests of the stopping rule.
#include "bench/run/timing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace halfmark::bench {
namespace {

TEST(StoppingRule, StopsAsSoonAsTheMedianIsPrecise) {
  const Sampled sampled =
      sample_until({.target = 0.01, .min_samples = 6, .max_samples = 100, .budget = 1e9}, [] { return 2.0; });
  EXPECT_EQ(sampled.samples.size(), 6u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::target);
  EXPECT_EQ(sampled.half_width, 0);
}

TEST(StoppingRule, ContinuesToTheMaximumWhenSamplesScatter) {
  int i = 0;
  const Sampled sampled = sample_until({.target = 0.01, .min_samples = 6, .max_samples = 50, .budget = 1e9},
                                       [&] { return i++ % 2 ? 1.0 : 3.0; });
  EXPECT_EQ(sampled.samples.size(), 50u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::samples);
  EXPECT_GT(sampled.half_width, 0.1);
}

TEST(StoppingRule, StopsAtTheBudgetButNotBeforeTheMinimumOfSamples) {
  int i = 0;
  const auto scattered = [&] { return i++ % 2 ? 1.0 : 3.0; };
  const Sampled sampled =
      sample_until({.target = 0.01, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 1}, scattered);
  EXPECT_EQ(sampled.samples.size(), 6u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::budget);
  EXPECT_TRUE(std::isfinite(sampled.half_width));
}

TEST(StoppingRule, ContinuesPastTheBudgetUntilTheMedianIsUsableOrPatienceEnds) {
  int i = 0;
  const auto calming = [&] { return ++i <= 6 && i % 2 ? 3.0 : 1.0; };  // disturbed at first
  const Sampled shown =
      sample_until({.target = 0, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 1e9}, calming);
  EXPECT_EQ(shown.stopped_by, StoppedBy::budget);
  EXPECT_GT(shown.samples.size(), 6u);
  EXPECT_LE(shown.half_width, kWidestHalfWidth);

  i = 0;
  const auto scattered = [&] { return i++ % 2 ? 1.0 : 3.0; };
  const Sampled given_up =
      sample_until({.target = 0, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 40}, scattered);
  EXPECT_EQ(given_up.stopped_by, StoppedBy::budget);
  EXPECT_EQ(given_up.samples.size(), 20u);  // 2 seconds each on average
  EXPECT_GT(given_up.half_width, kWidestHalfWidth);
}

}  // namespace
}  // namespace halfmark::bench
