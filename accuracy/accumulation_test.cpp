// Tests of the accumulation harness on sums with known behaviour.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

TrialSpec spec_of(std::string_view policy, Axes axes, const std::string& device = "cpu") {
  TrialSpec spec;
  for (const Subject& subject : subjects())
    if (subject.name == "linear" && !spec.subject) spec.subject = &subject;
  spec.device = open_device(device);
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  return spec;
}

Findings findings(std::string_view policy, Axes axes) {
  return accumulation_harness().measure(spec_of(policy, std::move(axes)));
}

const Measurement& number(const Findings& found, std::string_view metric) {
  return *std::find_if(found.measurements.begin(), found.measurements.end(),
                       [&](const Measurement& m) { return m.metric == metric; });
}

double at(const Findings& found, std::string_view metric, double k) {
  for (const Series& curve : found.series)
    for (size_t i = 0; i < curve.x.size(); ++i)
      if (curve.metric == metric && curve.x[i] == k) return curve.y[i];
  ADD_FAILURE() << "no " << metric << " at " << k;
  return NAN;
}

TEST(Accumulation, InFp32AddsNoErrorToTheRoundingOfAnFp16Result) {
  const Findings found = findings("amp-fp16", {{"data", "same_sign"}});
  EXPECT_EQ(number(found, "accumulation.class").value, 0);
  // The relative error of rounding to fp16 is at most 2^-11. Its rms goes from 2^-11
  // / sqrt(12) to 2^-11 / sqrt(3) across a binade. The rms of 64 uniform errors has
  // a relative standard deviation of sqrt(4/45) 3 / (2 sqrt(64)) = 5.6 %.
  EXPECT_GT(at(found, "accumulation.error", 1 << 17), 0x1p-11 / std::sqrt(12) * (1 - 5 * 0.056));
  EXPECT_LT(at(found, "accumulation.error", 1 << 17), 0x1p-11);
}

TEST(Accumulation, InFp16StagnatesOnceTheSumIsLarge) {
  const Findings found = findings("amp-fp16", {{"data", "same_sign"}, {"sum", "fp16"}});
  EXPECT_EQ(number(found, "accumulation.class").value, 2);
  // Above 2048 the last place is 2, and a term below 1 is less than half of it: the sum of 2^17 terms of mean 1/4
  // stagnates.
  // The exact sum is 2^15 with a standard deviation of sqrt(2^17 (1/9 - 1/16)) = 80.
  EXPECT_NEAR(at(found, "accumulation.error", 1 << 17), 1 - 2048 / 0x1p15, 2048 / 0x1p15 * 5 * 80 / 0x1p15);
}

TEST(SlowAccumulation, StaysWithinItsBoundForEverySumAndData) {
  for (const std::string_view policy : {"fp32", "amp-fp16"})
    for (const char* data : {"random", "cancelling"})
      for (const char* sum : {"policy", "split_k"}) {
        const Findings found = findings(policy, {{"data", data}, {"sum", sum}});
        const Measurement& worst = number(found, "accumulation.backward_error");
        ASSERT_TRUE(worst.bound) << policy << " " << data << " " << sum;
        EXPECT_LE(worst.value, *worst.bound) << policy << " " << data << " " << sum;
      }
}

TEST(Accumulation, ASplitWithHalfPartialsCostsAConstantFactor) {
  const Findings found = findings("amp-fp16", {{"data", "random"}, {"sum", "split_k"}});
  EXPECT_EQ(number(found, "accumulation.class").value, 1)
      << number(found, "accumulation.growth").value << " " << number(found, "accumulation.ratio").value;
}

TEST(Accumulation, RefusesTrialsItCannotMeasure) {
  const Harness harness = accumulation_harness();
  EXPECT_TRUE(harness.refuses(spec_of("bf16", {{"sum", "fp16"}})));
  EXPECT_FALSE(harness.refuses(spec_of("fp16", {{"sum", "fp16"}})));
}

}  // namespace
}  // namespace halfmark::accuracy
