// Tests of the reduction harness on sums whose size is known.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kReducedLosses[] = {"mse/b8_o10", "cross_entropy/b8_o10",
                                          "binary_cross_entropy_with_logits/b8_o10"};

Findings reduced(const char* subject, const char* policy) {
  return findings_of(reduction_harness(), experiment_trial(subject, policy));
}

TEST(Reduction, OfLossesOverflowsInFp16AndNotInFp32OrUnderAutocast) {
  for (const char* subject : kReducedLosses)
    for (const char* policy : {"fp16", "fp32", "amp-fp16", "bf16"}) {
      const TrialSpec spec = experiment_trial(subject, policy);
      const Findings found = findings_of(reduction_harness(), spec);
      EXPECT_TRUE(meets_expectation(reduction_harness(), spec, found)) << subject << " " << policy;
      EXPECT_EQ(number_at(found, "reduction.nonfinite", "sum/policy") > 0, std::string(policy) == "fp16")
          << subject << " " << policy;
      EXPECT_EQ(number_at(found, "reduction.nonfinite", "operation"), 0) << subject << " " << policy;
    }
}

// The sum of n squares of normal numbers is n +- sqrt(2 n): 50,000 is 49 standard deviations below 65,520, and 70,000 is 12
// above it. In the format of the sum, terms below half an ulp are lost instead.
TEST(Reduction, StagnatesOrOverflowsByWhereTheSumIsRounded) {
  const Findings found = reduced("mse/b8_o10", "fp16");
  EXPECT_LE(curve_at(found, "reduction.error", "sum/low_result", 50000), 0x1p-11 + 50000 * 0x1p-24);
  EXPECT_TRUE(std::isinf(curve_at(found, "reduction.error", "sum/low_result", 70000)));
  // A sum above 16,384 is moved only by squares above 8, one of 200: what is left of 200,000 is less than a fifth.
  EXPECT_GT(curve_at(found, "reduction.error", "sum/low_sum", 200000), 0.8);
  EXPECT_LT(curve_at(found, "reduction.error", "sum/low_sum", 200000), 1);
  EXPECT_LE(curve_at(found, "reduction.error", "sum/fp32", 200000), 200000 * 0x1p-24);
}

TEST(Reduction, InBf16StagnatesAndDoesNotOverflow) {
  const Findings found = reduced("mse/b8_o10", "bf16");
  EXPECT_EQ(number_at(found, "reduction.nonfinite", "sum/low_sum"), 0);
  // A sum above 2,048 is moved only by squares above 8, and by these to the next multiple of 16.
  EXPECT_GT(curve_at(found, "reduction.error", "sum/low_sum", 200000), 0.95);
}

// 65,000 is 64,992 in fp16, and from 65,520 on a divisor is infinite: the mean becomes 0.
TEST(Reduction, WithADivisorInFp16LosesTheMean) {
  const Findings found = reduced("mse/b8_o10", "fp16");
  EXPECT_NEAR(curve_at(found, "reduction.error", "mean/fp32/low_divisor", 65000), 65000.0 / 64992 - 1, 65000 * 0x1p-24);
  for (const double length : {70000.0, 100000.0, 200000.0}) {
    EXPECT_EQ(curve_at(found, "reduction.error", "mean/fp32/low_divisor", length), 1) << length;
    EXPECT_LE(curve_at(found, "reduction.error", "mean/fp32", length), length * 0x1p-24) << length;
  }
  EXPECT_EQ(number_at(found, "reduction.first_wrong", "mean/fp32/low_divisor"), 70000);
  EXPECT_TRUE(std::isinf(number_at(found, "reduction.first_wrong", "mean/fp32")));
}

TEST(Reduction, FindsThatKerasClipInFp16NoLongerClipsFromAbove) {
  const Findings half = reduced("cross_entropy/b8_o10", "fp16"), wide = reduced("cross_entropy/b8_o10", "amp-fp16");
  EXPECT_EQ(number_at(half, "reduction.clip_bound", "lower/low"), 0x1p-23);  // the second subnormal of fp16
  EXPECT_EQ(number_at(half, "reduction.clip_bound", "upper/low"), 1);
  EXPECT_EQ(number_at(half, "reduction.clips", "lower/policy"), 1);
  EXPECT_EQ(number_at(half, "reduction.clips", "upper/policy"), 0);
  EXPECT_NEAR(number_at(half, "reduction.clipped_loss", "impossible/policy"), 23 * std::log(2.0), 1e-9);
  EXPECT_TRUE(std::isinf(number_at(half, "reduction.clipped_loss", "certain/policy")));
  EXPECT_EQ(number_at(wide, "reduction.clips", "upper/policy"), 1);
  EXPECT_EQ(number_at(wide, "reduction.clips", "upper/low"), 0);
  // Below 1, neighbours of fp32 are 2^-24 apart: 1 - 1e-7 is 1 - 2^-23.
  EXPECT_NEAR(number_at(wide, "reduction.clipped_loss", "certain/policy"), 23 * std::log(2.0), 1e-9);
}

// A sigmoid is rounded to 1 where 1 - p is at most half an ulp below 1, and to 0 at half the least subnormal.
TEST(Reduction, FindsTheLogitsWhoseProbabilityIsRoundedAway) {
  const char* bce = "binary_cross_entropy_with_logits/b8_o10";
  const auto first = [](double logit) { return std::ceil(logit / 0.25) * 0.25; };
  const Findings half = reduced(bce, "fp16"), wide = reduced(bce, "fp32"), amp = reduced(bce, "amp-fp16");
  EXPECT_EQ(number_at(half, "reduction.least_infinite_logit", "sigmoid_then_log/target=0"),
            first(std::log(0x1p12 - 1)));
  EXPECT_EQ(number_at(half, "reduction.least_infinite_logit", "sigmoid_then_log/target=1"),
            first(std::log(0x1p25 - 1)));
  // In fp32 the sum 1 + exp(-x) is rounded, too: at 2^-24, half an ulp above 1.
  EXPECT_GE(number_at(wide, "reduction.least_infinite_logit", "sigmoid_then_log/target=0"),
            first(std::log(0x1p24 - 1)));
  EXPECT_LE(number_at(wide, "reduction.least_infinite_logit", "sigmoid_then_log/target=0"),
            first(std::log(0x1p25 - 1)));
  for (const Findings* found : {&half, &wide, &amp})
    for (const char* at : {"with_logits/target=0", "with_logits/target=1"})
      EXPECT_TRUE(std::isinf(number_at(*found, "reduction.least_infinite_logit", at))) << at;
  EXPECT_EQ(number_at(amp, "reduction.refused", "binary_cross_entropy"), 1);
  EXPECT_EQ(number_at(half, "reduction.refused", "binary_cross_entropy"), 0);
}

TEST(Reduction, NeedsALoss) {
  EXPECT_TRUE(refusal_of(reduction_harness(), experiment_trial("linear/b4_i16_o8", "fp16")));
  EXPECT_TRUE(refusal_of(reduction_harness(), experiment_trial("focal/b8_o10", "fp16")));
}

}  // namespace
}  // namespace halfmark::accuracy
