// The experiments on dtypes, equal bits, conversions, capacity and loss scales.
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

namespace halfmark::accuracy {
namespace {

const std::string kFactsMlp = "mlp/b32_i64_h128_o10", kFactsResNet = "resnet/b16_s16_n1_w8";

Findings facts_of(const Harness& harness, const std::string& subject, std::string_view policy, Axes axes = {}) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.settings = spec.subject->settings;
  spec.axes = std::move(axes);
  EXPECT_FALSE(refusal_of(harness, spec));
  Findings findings = harness.measure(spec);
  check_findings(harness, findings);
  return findings;
}

double fact(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one.value;
  ADD_FAILURE() << "no " << metric << " at '" << at << "'";
  return 0;
}

double fact_of_curve(const Findings& findings, std::string_view metric, double x) {
  for (const Series& one : findings.series)
    for (size_t i = 0; one.metric == metric && i < one.x.size(); ++i)
      if (one.x[i] == x) return one.y[i];
  ADD_FAILURE() << "no " << metric << " at " << x;
  return 0;
}

// Autocast: parameters and their gradients in f32, activations and their gradients in f16; O2: a copy beside f16 parameters.
TEST(DTypesExperiment, TellsAutocastFromMasterWeights) {
  const Findings amp = facts_of(dtypes_harness(), kFactsMlp, "amp-fp16"),
                 o2 = facts_of(dtypes_harness(), kFactsMlp, "apex-o2");
  EXPECT_EQ(fact(amp, "dtypes.bits", "parameter/least"), 32);
  EXPECT_EQ(fact(amp, "dtypes.bits", "parameter_gradient/least"), 32);
  EXPECT_EQ(fact(amp, "dtypes.bits", "activation_gradient/most"), 16);
  EXPECT_EQ(fact(amp, "dtypes.tensors", "parameter/f32"), 6) << "three layers with a weight and a bias";
  EXPECT_EQ(fact(o2, "dtypes.bits", "parameter/most"), 16);
  EXPECT_EQ(fact(o2, "dtypes.bits", "master/least"), 32);
  EXPECT_EQ(fact(o2, "dtypes.tensors", "master/f32"), 6);
}

TEST(SameBitsExperiment, FindsMasterWeightsEqualAndOtherPoliciesDifferent) {
  const Findings same = facts_of(same_bits_harness(), kFactsMlp, "fp16-master+scaler=none", {{"against", "apex-o3"}});
  for (const char* at : {"activation", "loss", "gradient"}) EXPECT_EQ(fact(same, "same_bits.different", at), 0) << at;
  const Findings other = facts_of(same_bits_harness(), kFactsMlp, "fp16", {{"against", "bf16"}});
  EXPECT_GT(fact(other, "same_bits.different", "activation"), 0.5);
}

TEST(ConversionExperiment, FindsWideningExactAndNarrowingWithinTheUnitRoundoff) {
  for (const auto& [policy, unit] : {std::pair{"fp16", 0x1p-11}, {"bf16", 0x1p-8}}) {
    const Findings findings = facts_of(conversion_harness(), kFactsMlp, policy);
    EXPECT_EQ(fact(findings, "conversion.widening"), 0) << policy;
    EXPECT_LE(fact(findings, "conversion.narrowing"), unit) << policy;
    EXPECT_GT(fact(findings, "conversion.narrowing"), 0.9 * unit) << policy << ": some number lies close to the middle";
    // An fp32 number stays if its last 13 (bf16: 16) bits are zero: one in 2^13 or fewer.
    EXPECT_GT(fact(findings, "conversion.changed"), 0.999) << policy;
  }
}

TEST(CapacityExperiment, HalvesPureFp16AndFindsTheLargestBatchThatFits) {
  const Findings pure = facts_of(capacity_harness(), kFactsResNet, "fp16", {{"memory", "1"}}),
                 wide = facts_of(capacity_harness(), kFactsResNet, "fp32", {{"memory", "1"}});
  EXPECT_NEAR(fact(pure, "capacity.bytes_ratio", "largest"), 0.5, 0.01);
  EXPECT_NEAR(fact(pure, "capacity.ratio"), 2, 0.02);
  EXPECT_EQ(fact(wide, "capacity.ratio"), 1);
  // Bytes are linear in the batch: so many more samples fit into the rest of the memory.
  const double at_128 = fact_of_curve(wide, "capacity.bytes", 128), at_256 = fact_of_curve(wide, "capacity.bytes", 256);
  const double expected = 256 + std::floor((0x1p30 - at_256) / ((at_256 - at_128) / 128));
  EXPECT_NEAR(fact(wide, "capacity.batch"), expected, 2);
}

// Bytes of the parameters in fp32, whatever the policy stores: 4 ((16 + 1) 24 + (24 + 1) 24 + (24 + 1) 10).
TEST(CapacityExperiment, TheShareOfMasterWeightsIsThatOfParametersInFp32) {
  for (const char* policy : {"fp32", "amp-fp16", "fp16-master", "fp16"}) {
    const Findings found = facts_of(capacity_harness(), "mlp/b8_i16_h24_o10", policy);
    for (const double batch : {1.0, 64.0})
      EXPECT_NEAR(fact_of_curve(found, "capacity.master_share", batch) * fact_of_curve(found, "capacity.bytes", batch),
                  4 * 1258, 1e-6)
          << policy << " " << batch;
  }
}

// With the loss times 1e-5, gradients underflow at scale 1 and the model learns nothing; a large scale learns as fp32.
TEST(LossScaleExperiment, FindsThePlateauOfScalesThatTrain) {
  const Axes axes = {{"loss_factor", "1e-05"}, {"seeds", "3"}, {"steps", "40"}};
  const Findings half = facts_of(loss_scale_harness(), kFactsMlp, "amp-fp16", axes);
  EXPECT_GT(fact_of_curve(half, "loss_scale.zeroed", 0), 0.5);
  EXPECT_LT(fact_of_curve(half, "loss_scale.zeroed", 20), 0.01);
  EXPECT_GT(fact(half, "loss_scale.first_good"), 0);
  EXPECT_LE(fact(half, "loss_scale.dynamic_loss"),
            fact(half, "loss_scale.fp32_loss") + fact(half, "loss_scale.margin"));
  // As the metric says: 2 % of fp32's loss, or two of its standard deviations if they are more.
  const auto loss = std::ranges::find(half.measurements, std::string("loss_scale.fp32_loss"), &Measurement::metric);
  const double deviation = loss->standard_error.value() * std::sqrt(3.0);
  EXPECT_NEAR(fact(half, "loss_scale.margin"), std::max(0.02 * loss->value, 2 * deviation), 1e-9);
  EXPECT_GT(std::fabs(0.02 * loss->value - 2 * deviation), 1e-6) << "else the larger cannot be told from the smaller";
}

// Of three trainings, each computed here: mean and standard error of the last tenth of the steps.
TEST(LossScaleExperiment, GivesTheStandardErrorOfALossOverTheSeeds) {
  constexpr int64_t kSteps = 20, kCounted = 2;
  const Findings found = facts_of(loss_scale_harness(), kFactsMlp, "amp-fp16", {{"seeds", "3"}, {"steps", "20"}});
  std::vector<double> losses;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    TrialSpec spec;
    spec.subject = &subject_named(kFactsMlp), spec.device = open_device("cpu");
    spec.policy = &policy_named("amp-fp16"), spec.settings = spec.subject->settings, spec.seed = seed;
    spec.settings.scaler = ScalerSpec{.kind = ScalerSpec::Kind::fixed, .initial = 1024};
    Trial trial(spec);
    double loss = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      const double one = trial.train_step(step).loss;
      if (step >= kSteps - kCounted) loss += one / kCounted;
    }
    losses.push_back(loss);
  }
  const double mean = (losses[0] + losses[1] + losses[2]) / 3;
  double squares = 0;
  for (const double loss : losses) squares += (loss - mean) * (loss - mean);
  EXPECT_NEAR(fact_of_curve(found, "loss_scale.loss", 10), mean, 1e-12);
  EXPECT_NEAR(fact_of_curve(found, "loss_scale.loss_standard_error", 10), std::sqrt(squares / 2 / 3), 1e-12);
  EXPECT_GT(squares, 0);
}

// A loss of 10^4 overflows at first: the scale halves until it does not.
TEST(LossScaleExperiment, GivesTheShareOfStepsThatTheDynamicScaleSkips) {
  constexpr int kSteps = 12;
  constexpr uint64_t kSeedsOfTraining = 3;
  const Findings found = facts_of(loss_scale_harness(), kFactsMlp, "amp-fp16",
                                  {{"loss_factor", "10000"}, {"seeds", "3"}, {"steps", std::to_string(kSteps)}});
  double skipped = 0, steps = 0;
  for (uint64_t seed = 0; seed < kSeedsOfTraining; ++seed) {
    TrialSpec spec;
    spec.subject = &subject_named(kFactsMlp), spec.device = open_device("cpu");
    spec.policy = &policy_named("amp-fp16"), spec.settings = spec.subject->settings;
    spec.settings.loss_factor = 1e4, spec.seed = seed;
    Trial trial(spec);
    for (int step = 0; step < kSteps; ++step) skipped += trial.train_step(step).skipped, ++steps;
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, steps);
  EXPECT_NEAR(fact(found, "loss_scale.dynamic_skipped"), skipped / steps, 1e-12);
}

}  // namespace
}  // namespace halfmark::accuracy
