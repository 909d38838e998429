// Tests of the stopping rule.
#include "bench/run/timing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

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

// Samples 0, 1, 2, ... of one second each; `counts` of the samples since the last answer, nothing: no answer.
struct JudgedSamples {
  std::vector<bool> asked;  // whether an answer was needed
  Sampled sampled;
};
JudgedSamples judged_samples(const StoppingRule& rule,
                             const std::function<std::optional<bool>(int samples, bool is_needed)>& counts) {
  JudgedSamples result;
  int samples = 0;
  result.sampled = sample_until(
      rule, [&] { return ++samples, 1.0; },
      [&](bool is_needed) {
        result.asked.push_back(is_needed);
        return counts(samples, is_needed);
      });
  return result;
}

constexpr StoppingRule kSixOfOneSecond = {
    .target = 0.01, .min_samples = 6, .max_samples = 100, .budget = 30, .patience = 40};
using TakenCalls = std::vector<size_t>;

TEST(DiscardedSamples, AreThoseSinceTheLastAnswer) {
  // Answers after samples 2, 4, 6, ...; that after 4 rejects.
  const JudgedSamples found = judged_samples(kSixOfOneSecond, [](int samples, bool is_needed) -> std::optional<bool> {
    if (samples % 2 == 1 && !is_needed) return {};
    return samples != 4;
  });
  EXPECT_EQ(found.sampled.taken, (TakenCalls{0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(found.sampled.samples.size(), 6u);
  EXPECT_EQ(found.sampled.discarded, 2u);
  EXPECT_EQ(found.sampled.slowed, 0);
  EXPECT_EQ(found.sampled.stopped_by, StoppedBy::target);
}

TEST(DiscardedSamples, AreAskedForBeforeTheEnd) {
  // No answer of its own accord; the first that is needed rejects.
  int needed = 0;
  const JudgedSamples found = judged_samples(kSixOfOneSecond, [&](int, bool is_needed) -> std::optional<bool> {
    if (!is_needed) return {};
    return ++needed > 1;
  });
  EXPECT_EQ(found.sampled.taken, (TakenCalls{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(found.sampled.discarded, 6u);
  EXPECT_EQ(needed, 2);
}

TEST(DiscardedSamples, AreKeptAtTheEndOfThePatienceIfTooFewAreLeft) {
  const JudgedSamples never = judged_samples(kSixOfOneSecond, [](int, bool) { return false; });
  EXPECT_EQ(never.sampled.samples.size(), 40u);
  EXPECT_EQ(never.sampled.taken.size(), 40u);
  EXPECT_EQ(never.sampled.discarded, 0u);
  EXPECT_EQ(never.sampled.slowed, 1);
  EXPECT_EQ(never.sampled.stopped_by, StoppedBy::budget);
  EXPECT_EQ(never.sampled.half_width, 0);
  const JudgedSamples rare = judged_samples(kSixOfOneSecond, [](int samples, bool) { return samples % 10 == 0; });
  EXPECT_EQ(rare.sampled.samples.size(), 40u);
  EXPECT_EQ(rare.sampled.slowed, 0.9);
  StoppingRule few = kSixOfOneSecond;
  few.max_samples = 20;
  const JudgedSamples last = judged_samples(few, [](int samples, bool) { return samples == 1 || samples == 40; });
  EXPECT_EQ(last.sampled.taken.front(), 20u);
  EXPECT_EQ(last.sampled.taken.back(), 39u);
  EXPECT_EQ(last.sampled.slowed, 0.95) << "one of the last 20 counts";
}

TEST(DiscardedSamples, AreNoneWhereAllCount) {
  const JudgedSamples found = judged_samples(kSixOfOneSecond, [](int, bool) { return true; });
  EXPECT_EQ(found.sampled.taken, (TakenCalls{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(found.sampled.discarded, 0u);
  EXPECT_EQ(found.asked, std::vector<bool>(6, false));
}

}  // namespace
}  // namespace halfmark::bench
