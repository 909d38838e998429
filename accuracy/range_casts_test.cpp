// What the range harness says of casts: counts of known numbers, of gradients without a loss scale, and no other bits with counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

TrialSpec spec_under(const std::string& subject, std::string_view policy) {
  const auto found =
      std::find_if(subjects().begin(), subjects().end(), [&](const Subject& s) { return s.name == subject; });
  if (found == subjects().end()) throw Error("no subject " + subject);
  TrialSpec spec;
  spec.subject = &*found;
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  return spec;
}

double value_of(const Findings& findings, std::string_view metric, const std::string& at) {
  for (const Measurement& m : findings.measurements)
    if (m.metric == metric && m.at == at) return m.value;
  throw Error("no " + std::string(metric) + " at '" + at + "'");
}

// Under autocast the first linear layer casts the input, here one number many times, to fp16.
TEST(CastsOfRange, CountsWhatCastsOfKnownNumbersChange) {
  struct Known {
    double input, underflow, subnormal, overflow, inexact;
  };
  const Known known[] = {
      {1, 0, 0, 0, 0},       {1 + 0x1p-12, 0, 0, 0, 1}, {0x0.4p-24, 1, 0, 0, 1}, {0x0.cp-24, 0, 1, 0, 1},
      {0x1p-20, 0, 1, 0, 0}, {65520, 0, 0, 1, 1},       {65519, 0, 0, 0, 1},     {0, 0, 0, 0, 0}};
  for (const Known& one : known) {
    TrialSpec spec = spec_under("mlp", "amp-fp16");
    spec.settings.input_scale = 0, spec.settings.input_offset = one.input;
    const Findings findings = range_harness().measure(spec);
    const std::string at = "casts/activations/f32-f16";
    Trial trial(spec);
    trial.load_batch(0);
    EXPECT_EQ(value_of(findings, "range.cast_values", at), static_cast<double>(trial.input().elements()));
    EXPECT_EQ(value_of(findings, "range.cast_underflow", at), one.underflow) << one.input;
    EXPECT_EQ(value_of(findings, "range.cast_subnormal", at), one.subnormal) << one.input;
    EXPECT_EQ(value_of(findings, "range.cast_overflow", at), one.overflow) << one.input;
    EXPECT_EQ(value_of(findings, "range.cast_inexact", at), one.inexact) << one.input;
    double weights = 0;
    for (const Param* param : trial.params()) weights += static_cast<double>(param->value.elements());
    EXPECT_EQ(value_of(findings, "range.cast_values", "casts/weights/f32-f16"), weights);
  }
}

// The gradient of a residual block is fp32 and that of its linear layers fp16.
TEST(CastsOfRange, CountsTheGradientsThatACastMakesSubnormalWithoutALossScale) {
  TrialSpec spec = spec_under("gpt", "amp-fp16");
  spec.settings.loss_factor = 0x1p-14;
  const std::string at = "casts/gradients/f32-f16";
  const Findings scaled = range_harness().measure(spec);
  spec.settings.scaler = ScalerSpec{};
  const Findings plain = range_harness().measure(spec);
  EXPECT_GT(value_of(plain, "range.cast_subnormal", at), 0.5);
  EXPECT_LT(value_of(scaled, "range.cast_subnormal", at), 0.1);
  EXPECT_EQ(value_of(plain, "range.cast_values", at), value_of(scaled, "range.cast_values", at));
}

TEST(CastsOfRange, CountsNoCastsWhereNothingIsNarrowed) {
  for (const char* policy : {"fp32", "fp16", "fp64"})
    for (const Measurement& one : range_harness().measure(spec_under("mlp", policy)).measurements)
      EXPECT_FALSE(one.metric.starts_with("range.cast_")) << policy << " " << one.at;
}

// Counting changes no bit, whatever layouts the device chooses.
TEST(CastsOfRange, ComputesTheSameWithCounts) {
  for (const char* subject : {"mlp", "resnet", "gpt"})
    for (const bool fused : {false, true}) {
      TrialSpec spec = spec_under(subject, "amp-bf16");
      spec.settings.fused = fused;
      const auto run = [&](CastCounts* counts) {
        Trial trial(spec);
        trial.set_cast_counts(counts);
        trial.train_step(0), trial.train_step(1);
        std::vector<std::vector<double>> values{trial.forward().values()};
        for (const Param* param : trial.params()) values.push_back(param->value.values());
        return values;
      };
      CastCounts counts;
      EXPECT_EQ(run(nullptr), run(&counts)) << subject;
      EXPECT_FALSE(counts.rows().empty());
    }
}

}  // namespace
}  // namespace halfmark::accuracy
