#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/layer_errors.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

TrialSpec half_spec(const char* subject, const char* policy) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.seed = 4;
  spec.settings = spec.subject->settings;
  return spec;
}

double value_at(const Findings& findings, const std::string& metric, const std::string& at) {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one.value;
  ADD_FAILURE() << metric << " at " << at;
  return NAN;
}

TEST(Sensitivity, EveryLayerNamedAsFp32GivesTheBitsOfFp32) {
  for (const char* policy : {"fp16", "bf16", "amp-fp16", "fp16-sum16", "fp16-bn32"})
    for (const char* subject : {"convnet/b4_c1_s8_w4", "gpt/b2_t8_n1_h2_d8_v27", "batchnorm2d/b4_c3_s4"}) {
      PassComparison comparison(half_spec(subject, policy));
      const PassErrors fp32 = comparison.under(policy_named("fp32"));
      EXPECT_EQ(comparison.under(with_precision(policy_named(policy), "*=fp32")).codes, fp32.codes)
          << subject << " " << policy;
      EXPECT_NE(comparison.under(policy_named(policy)).codes, fp32.codes) << subject << " " << policy;
    }
}

TEST(Sensitivity, RanksTheLayersByTheirErrorAloneInHalf) {
  const TrialSpec spec = half_spec("mlp/b8_i16_h24_o10", "fp16");
  const Harness harness = sensitivity_harness();
  const Findings findings = harness.measure(spec);
  check_findings(harness, findings);
  EXPECT_EQ(value_at(findings, "sensitivity.control", ""), 1);
  const std::vector<std::string> layers = layers_with_policy(*spec.subject->network);
  for (const std::string& a : layers)
    for (const std::string& b : layers)
      if (value_at(findings, "sensitivity.half_alone", a) > value_at(findings, "sensitivity.half_alone", b)) {
        EXPECT_LT(value_at(findings, "sensitivity.rank", a), value_at(findings, "sensitivity.rank", b))
            << a << " " << b;
      }
  // The loss computes no output.
  EXPECT_EQ(value_at(findings, "sensitivity.half_alone", "loss"), value_at(findings, "sensitivity.fp32_alone", "all"));
  const double tau = value_at(findings, "sensitivity.tau", "");
  EXPECT_TRUE(tau >= -1 && tau <= 1) << tau;
  EXPECT_LE(value_at(findings, "sensitivity.tau_least", ""), tau);
}

TEST(Sensitivity, RefusesWhatItCannotRank) {
  const Harness harness = sensitivity_harness();
  EXPECT_TRUE(refusal_of(harness, half_spec("mlp/b8_i16_h24_o10", "fp32")));
  EXPECT_TRUE(refusal_of(harness, half_spec("batchnorm2d/b4_c3_s4", "fp16")));
  EXPECT_TRUE(refusal_of(harness, half_spec("mlp/b8_i16_h24_o10", "fp16+precision=loss=fp32")));
  EXPECT_FALSE(refusal_of(harness, half_spec("mlp/b8_i16_h24_o10", "tf32")));
}

}  // namespace
}  // namespace halfmark::accuracy
