// Tests of the underflow harness: the shares that theory and the reference points of the claims give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kUnderflowShape = "relu/b16_c64_s8";  // 65,536 numbers

Findings underflow_under(const char* policy, Axes axes = {}) {
  return findings_of(underflow_harness(), experiment_trial(kUnderflowShape, policy, std::move(axes)));
}

TEST(Underflow, GivesTheReferencePointsOfLossScaling) {
  const Findings found = underflow_under("fp16");
  struct Point {
    const char* at;
    double share, digits;  // as S1-4 of the claims states it, and half of its last digit
  };
  for (const Point& point :
       {Point{"median=2^-24/scale=2^0", 0.31, 0.005}, Point{"median=2^-24/scale=2^7", 0, 0.005},
        Point{"median=2^-27/scale=2^0", 0.84, 0.005}, Point{"median=2^-27/scale=2^7", 0.006, 0.0005},
        Point{"median=2^-30/scale=2^0", 0.99, 0.005}, Point{"median=2^-30/scale=2^7", 0.16, 0.005}}) {
    const double error = std::sqrt(std::max(point.share * (1 - point.share), 1e-5) / 65536);
    EXPECT_NEAR(number_at(found, "underflow.zero", point.at), point.share, point.digits + 5 * error) << point.at;
    EXPECT_EQ(number_at(found, "underflow.infinite", point.at), 0) << point.at;
  }
  // 250 shares: the largest of as many normal deviations is above 5 once in 7,000 samples.
  EXPECT_LT(number_at(found, "underflow.deviation"), 5);
}

// sqrt(p (1 - p) / n) with the p of theory: 31, 84 and 98 % of 65,536 numbers.
TEST(Underflow, GivesTheStandardErrorsOfItsShares) {
  const Findings found = underflow_under("fp16");
  for (const auto& [at, z] : {std::pair{"median=2^-24/scale=2^0", -0.5},
                              {"median=2^-27/scale=2^0", 1.0},
                              {"policy", 1.0},
                              {"median=2^-30/scale=2^7", -1.0},
                              {"median=2^-28/scale=2^0", 1.5}}) {
    const double p = 0.5 * std::erfc(-z / std::sqrt(2.0)), expected = std::sqrt(p * (1 - p) / 65536);
    const auto one = std::ranges::find_if(found.measurements, [&, where = std::string(at)](const Measurement& number) {
      return number.metric == "underflow.zero" && number.at == where;
    });
    ASSERT_TRUE(one != found.measurements.end() && one->standard_error) << at;
    EXPECT_NEAR(*one->standard_error, expected, 0.02 * expected) << at;
  }
}

// With the median 2^-24 and 2 octaves: Phi((-25 - k + 24) / 2) < 0.001 from k = 6 on, and up to 2^24 nothing overflows:
// 65520 is 8 standard deviations above 2^0.
TEST(Underflow, CountsTheLossScalesThatLoseNothing) {
  const Findings found = underflow_under("fp16");
  EXPECT_EQ(number_at(found, "underflow.good_scales", "median=2^-24"), 24 - 6 + 1);
  EXPECT_EQ(number_at(found, "underflow.good_scales", "median=2^-34"), 24 - 16 + 1);
}

TEST(Underflow, LosesGradientsInFp16AndNotWithALossScaleOrAWiderFormat) {
  for (const char* policy : {"fp16", "amp-fp16", "fp32", "bf16"}) {
    const TrialSpec spec = experiment_trial(kUnderflowShape, policy);
    const Findings found = findings_of(underflow_harness(), spec);
    EXPECT_TRUE(meets_expectation(underflow_harness(), spec, found)) << policy;
    EXPECT_EQ(number_at(found, "underflow.zero", "policy") > 0.8, std::string(policy) == "fp16") << policy;
  }
}

TEST(Underflow, FindsScalingByPowersOfTwoExactAndByOthersNot) {
  const Findings found = underflow_under("fp16");
  EXPECT_GT(number_at(found, "scaling.compared", "power_of_two"), 1e6);
  EXPECT_EQ(number_at(found, "scaling.changed", "power_of_two"), 0);
  EXPECT_LE(number_at(found, "scaling.ulps", "power_of_two"), 0.5);
  EXPECT_GT(number_at(found, "scaling.changed", "other"), 0.5);
  // Half an ulp of x scale is less than an ulp of x, as seen at x; the divisions in fp32 add 2^-23 of 2^10 ulps.
  EXPECT_GT(number_at(found, "scaling.ulps", "other"), 0.5);
  EXPECT_LE(number_at(found, "scaling.ulps", "other"), 1 + 0x1p-12);
}

TEST(Underflow, NeedsTheShapeOfASingleLayer) {
  EXPECT_TRUE(refusal_of(underflow_harness(), experiment_trial("mlp/b8_i16_h24_o10", "fp16")));
  EXPECT_FALSE(refusal_of(underflow_harness(), experiment_trial(kUnderflowShape, "fp16")));
}

TEST(Underflow, MeasuresTheSameOnASimulatedGpu) {
  const Findings cpu = underflow_under("fp16"),
                 sim = findings_of(underflow_harness(), experiment_trial(kUnderflowShape, "fp16", {}, "sim:hopper"));
  EXPECT_EQ(number_at(cpu, "underflow.zero", "policy"), number_at(sim, "underflow.zero", "policy"));
}

}  // namespace
}  // namespace halfmark::accuracy
