// Tests of the batchnorm_statistics harness on batches whose statistics a format cannot hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kStatisticsImages = "batchnorm2d/b16_c4_s8";  // 1,024 values of a channel

Findings statistics_under(const char* subject, const char* policy) {
  return findings_of(batchnorm_statistics_harness(), experiment_trial(subject, policy));
}

TEST(BatchNormStatistics, OverflowInFp16StorageOnly) {
  for (const char* policy : {"fp16", "fp32", "fp16-bn32", "amp-fp16", "bf16"}) {
    const TrialSpec spec = experiment_trial(kStatisticsImages, policy);
    const Findings found = findings_of(batchnorm_statistics_harness(), spec);
    const bool is_half = std::string(policy) == "fp16";
    EXPECT_TRUE(meets_expectation(batchnorm_statistics_harness(), spec, found)) << policy;
    EXPECT_EQ(number_at(found, "batchnorm_statistics.running_nonfinite", "std=300"), is_half) << policy;
    // An infinite variance makes every normalised value 0: the layer gives its shift, and no NaN tells.
    const double silent = number_at(found, "batchnorm_statistics.silent", "std=300");
    EXPECT_TRUE(is_half ? silent == 1 : silent < 0.01) << policy << " " << silent;
    EXPECT_TRUE(is_half ? std::isinf(curve_at(found, "batchnorm_statistics.running_variance_error", "", 300))
                        : curve_at(found, "batchnorm_statistics.running_variance_error", "", 300) < 0x1p-8)
        << policy;
  }
}

TEST(BatchNormStatistics, OfSmallInputsVanishInFp16Storage) {
  const Findings half = statistics_under(kStatisticsImages, "fp16"),
                 wide = statistics_under(kStatisticsImages, "fp16-bn32");
  EXPECT_EQ(curve_at(half, "batchnorm_statistics.running_variance_error", "", 1e-4), 1);  // 1e-8 is 0 in fp16
  EXPECT_LT(curve_at(wide, "batchnorm_statistics.running_variance_error", "", 1e-4), 0x1p-20);
}

// S2-1: the error of a variance that is added in half is more than ten times that of one added in float.
TEST(BatchNormStatistics, AddedInHalfAreWrongAndStoredInHalfAreNot) {
  for (const char* policy : {"fp16", "bf16"}) {
    const Findings found = statistics_under(kStatisticsImages, policy);
    for (const double ratio : {0.0, 1.0, 3.0, 10.0}) {
      const double low = curve_at(found, "batchnorm_statistics.variance_error", "two_pass/low_sum/x=low", ratio),
                   wide = curve_at(found, "batchnorm_statistics.variance_error", "two_pass/fp32/x=low", ratio);
      EXPECT_GT(low, 10 * wide) << policy << " " << ratio;
      EXPECT_GT(curve_at(found, "batchnorm_statistics.variance_error", "two_pass/low_sum/x=f32", ratio), 10 * wide)
          << policy;
      EXPECT_LE(wide, 1024 * 0x1p-23) << policy << " " << ratio;
    }
  }
}

// E[x^2] - E[x]^2 loses the square of mean / standard deviation: at 100 the moments in half are equal.
TEST(BatchNormStatistics, OfOnePassCollapseForALargeMean) {
  const Findings found = statistics_under(kStatisticsImages, "fp16");
  EXPECT_GT(number_at(found, "batchnorm_statistics.collapsed", "one_pass/low_result/x=low"), 0);
  EXPECT_GT(curve_at(found, "batchnorm_statistics.variance_error", "one_pass/low_result/x=low", 100), 0.5);
  EXPECT_EQ(number_at(found, "batchnorm_statistics.collapsed", "two_pass/kernel/x=low"), 0);
  EXPECT_LT(curve_at(found, "batchnorm_statistics.variance_error", "two_pass/kernel/x=low", 1000), 1e-4);
  EXPECT_GT(curve_at(found, "batchnorm_statistics.variance_error", "one_pass/fp32/x=low", 1000),
            100 * curve_at(found, "batchnorm_statistics.variance_error", "two_pass/kernel/x=low", 1000));
}

// One pass in plain loops, where a sum in fp32 hardly errs: both moments, the square of the mean and the difference are rounded.
double one_pass_error_in_fp16(const TrialSpec& spec, double ratio) {
  constexpr size_t kImages = 16, kChannels = 4, kPixels = 64;
  constexpr double kCount = kImages * kPixels;
  const RandomKey key = RandomKey(spec.seed).child("batchnorm_statistics");
  const auto half = [](double x) { return round_to(kFp16, x); };
  double squared_errors = 0;
  for (size_t channel = 0; channel < kChannels; ++channel) {
    std::vector<double> x;
    for (size_t image = 0; image < kImages; ++image)
      for (size_t pixel = 0; pixel < kPixels; ++pixel)
        x.push_back(half(4 + 4 / ratio * key.normal((image * kChannels + channel) * kPixels + pixel)));
    double mean = 0, square = 0, variance = 0;
    for (const double value : x) mean += value / kCount, square += value * value / kCount;
    for (const double value : x) variance += (value - mean) * (value - mean) / kCount;
    const double error = (half(half(square) - half(half(mean) * half(mean))) - variance) / variance;
    squared_errors += error * error / kChannels;
  }
  return std::sqrt(squared_errors);
}

TEST(BatchNormStatistics, GiveAsTheirNumberTheErrorAtTheLargestRatio) {
  const TrialSpec spec = experiment_trial(kStatisticsImages, "fp16");
  const Findings found = findings_of(batchnorm_statistics_harness(), spec);
  const std::string at = "one_pass/low_result/x=low";
  for (const double ratio : {10.0, 1000.0}) {
    const double expected = one_pass_error_in_fp16(spec, ratio);
    EXPECT_NEAR(curve_at(found, "batchnorm_statistics.variance_error", at, ratio), expected, 1e-6 * expected) << ratio;
  }
  const double largest = one_pass_error_in_fp16(spec, 1000);
  EXPECT_NEAR(number_at(found, "batchnorm_statistics.variance_error", at), largest, 1e-6 * largest);
}

TEST(BatchNormStatistics, ArePoisonedByAnInfiniteActivationThoughTheStepIsSkipped) {
  const Findings amp = statistics_under(kStatisticsImages, "amp-fp16"),
                 plain = statistics_under(kStatisticsImages, "fp16");
  EXPECT_EQ(number_at(amp, "batchnorm_statistics.step_skipped"), 1);
  EXPECT_EQ(number_at(amp, "batchnorm_statistics.parameters_nonfinite"), 0);
  EXPECT_EQ(number_at(plain, "batchnorm_statistics.step_skipped"), 0);
  EXPECT_GT(number_at(plain, "batchnorm_statistics.parameters_nonfinite"), 0);
  for (const Findings* found : {&amp, &plain}) {
    EXPECT_EQ(number_at(*found, "batchnorm_statistics.poisoned", "before"), 0);
    EXPECT_EQ(number_at(*found, "batchnorm_statistics.poisoned", "after"),
              0.25);  // mean and variance of one channel of four
    EXPECT_EQ(number_at(*found, "batchnorm_statistics.poisoned", "later"), 0.25);
    EXPECT_EQ(number_at(*found, "batchnorm_statistics.output_nonfinite", "evaluation"), 0.25);
  }
  // In training, a batch has its own statistics.
  EXPECT_EQ(number_at(amp, "batchnorm_statistics.output_nonfinite", "training"), 0);
}

TEST(BatchNormStatistics, OfAFrozenLayerAreNotPoisoned) {
  const TrialSpec spec = experiment_trial("batchnorm2d/b16_c4_s8_m1", "amp-fp16");
  const Findings found = findings_of(batchnorm_statistics_harness(), spec);
  EXPECT_TRUE(meets_expectation(batchnorm_statistics_harness(), spec, found));
  EXPECT_EQ(number_at(found, "batchnorm_statistics.poisoned", "after"), 0);
}

// Each output is rounded once from a value of fp32. The gradients of scale and shift are sums of up to 100 terms of both signs: in
// fp32 up to 100 2^-24 of the sum of their sizes, which is some times the size of the sum.
TEST(BatchNormStatistics, HaveRightOutputsAndGradientsInBothLayoutsForAllRanks) {
  for (const char* subject :
       {"batchnorm2d/b4_c3_s5", "batchnorm2d/b4_c3_s5_a0", "batchnorm2d/b4_c3_s5_m1", "batchnorm2d/b4_c3_s5_m1_a0",
        "batchnorm1d/b16_c4", "batchnorm1d/b8_c4_t6", "batchnorm3d/b3_c4_d2_s4"})
    for (const auto& [policy, unit] : {std::pair{"fp32", 0x1p-20}, std::pair{"fp16", 0x1p-11},
                                       std::pair{"amp-fp16", 0x1p-11}, std::pair{"bf16", 0x1p-8}}) {
      const Findings found = statistics_under(subject, policy);
      for (const std::string layout : {"nchw", "nhwc"}) {
        EXPECT_LE(number_at(found, "batchnorm_statistics.output_error", layout), unit)
            << subject << " " << policy << " " << layout;
        for (const char* of : {"/input", "/scale", "/shift"})
          EXPECT_LE(number_at(found, "batchnorm_statistics.gradient_error", layout + of), std::max(unit, 0x1p-15))
              << subject << " " << policy << of;
        EXPECT_EQ(number_at(found, "batchnorm_statistics.layout_nonfinite", layout), 0)
            << subject << " " << policy << " " << layout;
      }
    }
}

TEST(BatchNormStatistics, NeedABatchNorm) {
  EXPECT_TRUE(refusal_of(batchnorm_statistics_harness(), experiment_trial("layernorm/b6_d12", "fp16")));
}

}  // namespace
}  // namespace halfmark::accuracy
