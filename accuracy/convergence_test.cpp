// The criterion of the harness convergence on numbers worked out with SciPy, and its controls.
#include "accuracy/convergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// import numpy as np; from scipy import stats
// d = np.array([1.1, 2, 3.2, 4.1, 5]) - np.array([1, 2, 3, 4, 5])
// h = stats.t.ppf(.95, 4) * d.std(ddof=1) / 5**.5             # 0.0797664
// s = stats.t.ppf(.975, 4) * np.std([1, 2, 3, 4, 5], ddof=1) * 1.2**.5  # 4.8089440
TEST(CompareSeeds, GivesTheGapItsIntervalAndTheSpreadOfFp32) {
  const FindingsOfSeeds found = compare_seeds({1.1, 2, 3.2, 4.1, 5}, {1, 2, 3, 4, 5});
  EXPECT_NEAR(found.gap, 0.08, 1e-12);
  EXPECT_NEAR(found.interval.lower, 0.08 - 0.0797664, 1e-6);
  EXPECT_NEAR(found.interval.upper, 0.08 + 0.0797664, 1e-6);
  EXPECT_NEAR(found.spread, 4.8089440, 1e-6);
  EXPECT_EQ(found.as_fp32, 1);
  ASSERT_EQ(found.gaps.size(), 5u);
  EXPECT_NEAR(found.gaps[2], 0.2, 1e-12);
}

TEST(CompareSeeds, TellsWithinBeyondAndNotShownApart) {
  const std::vector<double> fp32 = {1, 1.1, 0.9};  // spread 4.302653 * 0.1 * sqrt(4 / 3) = 0.4968
  const auto verdict = [&](double a, double b, double c) {
    return compare_seeds({1 + a, 1.1 + b, 0.9 + c}, fp32).as_fp32;
  };
  EXPECT_EQ(verdict(0, 0, 0), 1);
  EXPECT_EQ(verdict(0.49, 0.49, 0.49), 1);
  EXPECT_EQ(verdict(0.51, 0.51, 0.51), -1);
  EXPECT_EQ(verdict(-0.51, -0.51, -0.51), -1) << "a lower loss is not that of fp32 either";
  EXPECT_EQ(verdict(-0.4, 0.4, 0), 0) << "half of the interval is 2.919986 * 0.4 / sqrt(3) = 0.674";
  EXPECT_EQ(verdict(0.4, 0.5, 0.6), 0);
  EXPECT_EQ(verdict(-0.4, -0.5, -0.6), 0) << "-0.5 -+ 0.169 reaches -0.669";
  EXPECT_EQ(verdict(-0.55, -0.65, -0.75), 0);
  EXPECT_EQ(verdict(-0.6, -0.7, -0.8), -1);
  EXPECT_EQ(verdict(0.55, 0.65, 0.75), 0) << "0.65 -+ 0.169 reaches 0.481";
  EXPECT_EQ(verdict(0.6, 0.7, 0.8), -1) << "0.7 -+ 0.169 reaches 0.531";
  EXPECT_EQ(verdict(0.7, 0.7, 0.7), -1);
}

TEST(CompareSeeds, TakesALossThatIsNotFiniteAsUnlikeFp32) {
  EXPECT_EQ(compare_seeds({1, 1, kNotANumber}, {1, 1.1, 0.9}).as_fp32, -1);
  EXPECT_EQ(compare_seeds({1, 1, std::numeric_limits<double>::infinity()}, {1, 1.1, 0.9}).as_fp32, -1);
}

TEST(CompareSeeds, RefusesListsItCannotJudge) {
  EXPECT_THROW(compare_seeds({1, 2}, {1, 2}), Error);
  EXPECT_THROW(compare_seeds({1, 2, 3}, {1, 2, 3, 4, 5}), Error);
}

// import numpy as np; from scipy import stats; fp32 = np.arange(10) / 10
// stats.t.ppf(.975, 9) * fp32.std(ddof=1) * 1.1**.5           # 0.7183314
// stats.t.ppf(.95, 9) * np.std(fp32 * .1, ddof=1) / 10**.5    # 0.0175507
TEST(CompareSeeds, TakesAnyNumberOfSeedsFromThree) {
  std::vector<double> fp32, losses;
  for (int i = 0; i < 10; ++i) fp32.push_back(i / 10.0), losses.push_back(1.1 * i / 10.0);
  const FindingsOfSeeds found = compare_seeds(losses, fp32);
  EXPECT_NEAR(found.spread, 0.7183314, 1e-6);
  EXPECT_NEAR(found.interval.upper - found.gap, 0.0175507, 1e-6);
}

TrialSpec convergence_spec(const std::string& subject, const std::string& policy, Axes axes) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  spec.settings = spec.subject->settings;
  return spec;
}

double number_named(const Findings& findings, const std::string& metric) {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric) return one.value;
  throw Error("no " + metric);
}

constexpr const char* kSmall = "mlp/b8_i16_h24_o10";

TEST(Convergence, OfFp32IsThatOfFp32) {
  const Findings findings =
      convergence_harness().measure(convergence_spec(kSmall, "fp32", {{"seeds", "3"}, {"steps", "40"}}));
  EXPECT_EQ(number_named(findings, "convergence.loss_gap"), 0);
  EXPECT_EQ(number_named(findings, "convergence.as_fp32"), 1);
  EXPECT_GT(number_named(findings, "convergence.fp32_spread"), 0) << "the seeds differ";
  EXPECT_EQ(number_named(findings, "convergence.diverged_seeds"), 0);
}

TEST(Convergence, SeedsAreThoseOfTrainingsFromTheirOwnSeed) {
  const auto losses = [](uint64_t seed, const char* seeds) {
    TrialSpec spec = convergence_spec(kSmall, "bf16", {{"seeds", seeds}, {"steps", "10"}});
    spec.seed = seed;
    const Findings findings = convergence_harness().measure(spec);
    return findings.measurements.front().samples;
  };
  const std::vector<double> from0 = losses(0, "5"), from2 = losses(2, "3");
  ASSERT_EQ(from0.size(), 5u);
  EXPECT_EQ(std::vector<double>(from0.begin() + 2, from0.end()), from2);
}

TEST(Convergence, TrainsBothPrecisionsWithTheOptimizerAndTheRateOfTheAxes) {
  const auto losses = [](Axes axes) {
    axes.insert({{"seeds", "3"}, {"steps", "10"}});
    const Findings findings = convergence_harness().measure(convergence_spec(kSmall, "bf16", std::move(axes)));
    return std::pair(number_named(findings, "convergence.loss"), number_named(findings, "convergence.loss_fp32"));
  };
  const auto [own, own_fp32] = losses({});
  const auto [slow, slow_fp32] = losses({{"rate", "0.001"}});
  EXPECT_NE(slow, own);
  EXPECT_NE(slow_fp32, own_fp32) << "fp32 trains with the same settings";
  EXPECT_GT(slow_fp32, own_fp32) << "a smaller rate learns less in ten steps";
  const auto [adam, adam_fp32] = losses({{"optimizer", "adam"}});
  EXPECT_NE(adam, own);
  EXPECT_NE(adam_fp32, own_fp32);
  EXPECT_EQ(losses({{"optimizer", "adam"}, {"rate", "0.001"}}), std::pair(adam, adam_fp32))
      << "the rate of torch.optim.Adam if none is given";
  const auto [stochastic, stochastic_fp32] = losses({{"storage", "stochastic"}});
  EXPECT_NE(stochastic, own);
  EXPECT_EQ(stochastic_fp32, own_fp32) << "storage concerns narrow parameters only";
}

// A report with an interval of NaNs could not be read.
TEST(Convergence, OfATrainingThatDivergesHasNoInterval) {
  const Harness harness = convergence_harness();
  TrialSpec spec = convergence_spec(kSmall, "fp16", {{"control", "adam_in_fp16"}, {"seeds", "3"}});
  const Findings findings = harness.measure(spec);
  EXPECT_NO_THROW(check_findings(harness, findings));
  EXPECT_EQ(number_named(findings, "convergence.as_fp32"), -1);
  EXPECT_GT(number_named(findings, "convergence.diverged_seeds"), 0);
  spec.policy = &policy_named("amp-fp16");
  EXPECT_EQ(number_named(harness.measure(spec), "convergence.as_fp32"), 1);
}

TEST(Convergence, HasAnExpectationForEachControlAndNoneElse) {
  const Harness harness = convergence_harness();
  EXPECT_FALSE(harness.expects(convergence_spec(kSmall, "fp16", {})));
  EXPECT_TRUE(harness.expects(convergence_spec(kSmall, "fp16", {{"control", "adam_in_fp16"}})));
  EXPECT_TRUE(harness.refuses(convergence_spec(kSmall, "fp32", {{"control", "adam_in_fp16"}})));
  EXPECT_TRUE(harness.refuses(convergence_spec("linear/b4_i16_o8", "fp32", {})));
  const std::optional<std::string> why =
      harness.refuses(convergence_spec(kSmall, "fp16", {{"control", "adam_in_fp16"}, {"rate", "0.01"}}));
  EXPECT_EQ(why.value_or(""), "control adam_in_fp16 has settings of its own, so it takes no rate");
}

}  // namespace
}  // namespace halfmark::accuracy
