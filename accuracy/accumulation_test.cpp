// Tests of the accumulation harness on sums with known behaviour.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "kernels/number/dtype.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

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

// The median relative errors of 2000 products of fp16 numbers that a numpy emulation gave, to two digits.
// The median of 2000 half-normal errors has a relative standard deviation of 0.5 / (0.636 sqrt(2000)) / 0.674 = 2.6 %, theirs too.
TEST(Accumulation, Fp16SumsErrAsMuchAsInAnotherEmulation) {
  struct Published {
    bool positive;  // U(0, 1), else N(0, 1)
    Format sum;
    int64_t k;
    double median;
  };
  constexpr int64_t kColumns = 50, kRows = 40;
  const auto device = open_device("cpu");
  for (const Published& row : {Published{true, kFp16, 256, 1.2e-3}, Published{true, kFp16, 1024, 6.9e-3},
                               Published{true, kFp16, 4096, 7.3e-2}, Published{true, kFp16, 16384, 5.0e-1},
                               Published{false, kFp16, 256, 1.9e-3}, Published{false, kFp16, 4096, 7.8e-3},
                               Published{false, kFp16, 16384, 1.6e-2}, Published{true, kFp32, 4096, 1.7e-4},
                               Published{true, kFp32, 16384, 1.7e-4}, Published{false, kFp32, 16384, 1.7e-4}}) {
    std::vector<double> left(static_cast<size_t>(kRows * row.k)), right(static_cast<size_t>(row.k * kColumns));
    const auto draw = [&](std::vector<double>& values, const char* name) {
      const RandomKey key = RandomKey(17).child(name);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = decode(DType::f16, encode(DType::f16, row.positive ? key.uniform(i) : key.normal(i)));
    };
    draw(left, "left"), draw(right, "right");
    Tensor out(*device, {kRows, kColumns}, DType::f16);
    run(Matmul{.a = Tensor::from(*device, {kRows, row.k}, DType::f16, left),
               .b = Tensor::from(*device, {row.k, kColumns}, DType::f16, right),
               .out = out,
               .math = {.accumulate = row.sum}});
    const std::vector<double> sums = out.values();
    std::vector<double> errors;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      double exact = 0;
      for (int64_t k = 0; k < row.k; ++k)
        exact += left[static_cast<size_t>(i / kColumns * row.k + k)] *
                 right[static_cast<size_t>(k * kColumns + i % kColumns)];
      errors.push_back(std::fabs(sums[static_cast<size_t>(i)] - exact) / std::fabs(exact));
    }
    std::nth_element(errors.begin(), errors.begin() + std::ssize(errors) / 2, errors.end());
    const double median = errors[errors.size() / 2];
    EXPECT_NEAR(median / row.median, 1, 0.05 + 5 * 0.026 * std::sqrt(2)) << median << " for " << row.k << " terms";
  }
}

TEST(Accumulation, RefusesTrialsItCannotMeasure) {
  const Harness harness = accumulation_harness();
  EXPECT_TRUE(harness.refuses(spec_of("bf16", {{"sum", "fp16"}})));
  EXPECT_FALSE(harness.refuses(spec_of("fp16", {{"sum", "fp16"}})));
}

}  // namespace
}  // namespace halfmark::accuracy
