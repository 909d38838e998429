#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
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

// Tau-b: (pairs of layers in the same order - pairs in the other) / sqrt(pairs that differ in a * pairs that differ in b).
double tau_of(const std::vector<double>& a, const std::vector<double>& b) {
  double same = 0, other = 0, differ_in_a = 0, differ_in_b = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = i + 1; j < a.size(); ++j) {
      if (a[i] != a[j]) ++differ_in_a;
      if (b[i] != b[j]) ++differ_in_b;
      if (a[i] == a[j] || b[i] == b[j]) continue;
      ++((a[i] < a[j]) == (b[i] < b[j]) ? same : other);
    }
  return (same - other) / std::sqrt(differ_in_a * differ_in_b);
}

// The rankings of the first, second and third seed, each from a measurement of its own.
TEST(Sensitivity, TauIsThatOfThePairsOfThreeSeeds) {
  const char* const subject = "convnet/b4_c1_s8_w4";
  std::vector<std::string> layers = layers_with_policy(*subject_named(subject).network);
  std::erase(layers, "loss");  // as exact in half as in fp32
  std::vector<std::vector<double>> errors;
  Findings first;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    TrialSpec spec = half_spec(subject, "fp16");
    spec.seed += seed;
    const Findings found = sensitivity_harness().measure(spec);
    if (seed == 0) first = found;
    errors.emplace_back();
    for (const std::string& layer : layers) errors.back().push_back(value_at(found, "sensitivity.half_alone", layer));
    const double loss = value_at(found, "sensitivity.half_alone", "loss");
    EXPECT_LT(loss, *std::ranges::min_element(errors.back())) << "the last place in every ranking";
    errors.back().push_back(loss);
  }
  const double taus[] = {tau_of(errors[0], errors[1]), tau_of(errors[0], errors[2]), tau_of(errors[1], errors[2])};
  const double mean = (taus[0] + taus[1] + taus[2]) / 3;
  EXPECT_GT(std::fabs(taus[0] - mean), 1e-3) << "else two seeds would do";
  EXPECT_NEAR(value_at(first, "sensitivity.tau", ""), mean, 1e-12);
  EXPECT_NEAR(value_at(first, "sensitivity.tau_least", ""), *std::ranges::min_element(taus), 1e-12);
  // The jackknife leaves out one seed at a time, and of three seeds one pair is left.
  double squares = 0;
  for (const double tau : taus) squares += (tau - mean) * (tau - mean);
  for (const Measurement& one : first.measurements)
    if (one.metric == "sensitivity.tau") {
      ASSERT_TRUE(one.standard_error);
      EXPECT_NEAR(*one.standard_error, std::sqrt(2.0 / 3 * squares), 1e-12);
    }
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
