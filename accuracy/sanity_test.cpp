// The sanity harness: its checks hold for what the policies promise, and fail for what they do not.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "accuracy/sanity.h"
#include "kernels/devices.h"
#include "models/scaler_spec.h"

namespace halfmark::accuracy {
namespace {

const std::string kNet = "convnet/b4_c1_s8_w4";

TrialSpec sanity_spec(const std::string& subject, std::string_view policy, const std::string& check) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.seed = 1;
  spec.settings = spec.subject->settings;
  spec.axes = {{"check", check}};
  return spec;
}

double number_of(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one.value;
  ADD_FAILURE() << "no " << metric << " at '" << at << "'";
  return 0;
}

Findings sanity_of(const std::string& policy, const std::string& check) {
  return sanity_harness().measure(sanity_spec(kNet, policy, check));
}

TEST(Sanity, FindsThePrecisionOfEveryPolicy) {
  const std::pair<const char*, std::pair<double, double>> table[] = {
      {"fp64", {52, 1024.5}},   {"fp32", {23, 1024.5}}, {"tf32", {10, 1024}},    {"fp16", {10, 1024}},
      {"amp-fp16", {10, 1024}}, {"bf16", {7, 1024}},    {"amp-bf16", {7, 1024}},
  };
  for (const auto& [policy, expected] : table) {
    const Findings findings = sanity_of(policy, "precision");
    EXPECT_EQ(number_of(findings, "sanity.fraction_bits"), expected.first) << policy;
    EXPECT_EQ(number_of(findings, "sanity.product"), expected.second) << policy;
  }
}

// A device that multiplies in tf32 where fp32 was promised: what the expectation must not accept.
TEST(Sanity, SeesAMatmulThatIsLessPreciseThanPromised) {
  Policy policy = policy_named("tf32");
  policy.name = "fp32";
  TrialSpec spec = sanity_spec(kNet, "fp32", "precision");
  const auto expectation = sanity_harness().expects(spec);
  ASSERT_TRUE(expectation);
  EXPECT_EQ(expectation->limit, 23);
  spec.policy = &policy;
  EXPECT_NE(number_of(sanity_harness().measure(spec), "sanity.fraction_bits"), expectation->limit);
}

TEST(Sanity, SeesThatASkippedStepDoesNotProtectRunningStatistics) {
  const Findings amp = sanity_of("amp-fp16", "batchnorm");
  EXPECT_EQ(number_of(amp, "sanity.skipped_steps"), 1);
  EXPECT_GT(number_of(amp, "sanity.poisoned_statistics"), 0);
  EXPECT_EQ(number_of(sanity_of("fp32", "batchnorm"), "sanity.skipped_steps"), 0) << "fp32 skips nothing";
}

TEST(Sanity, FollowsTheScalerOfEachFramework) {
  for (const char* policy : {"amp-fp16", "fp16-master", "apex-o1", "apex-o2", "keras-mixed-float16"}) {
    const Findings findings = sanity_of(policy, "scaler");
    EXPECT_EQ(number_of(findings, "sanity.scale_mismatches"), 0) << policy;
    EXPECT_NEAR(number_of(findings, "sanity.gradient_ratio"), 1, 0.01) << policy;
  }
  // A rule with other factors does not pass.
  Policy other = policy_named("amp-fp16");
  other.scaler.backoff = 0.25;
  TrialSpec spec = sanity_spec(kNet, "amp-fp16", "scaler");
  spec.policy = &other;
  EXPECT_GT(number_of(sanity_harness().measure(spec), "sanity.scale_mismatches"), 0);
}

// GradScaler's rule, written down here, and steps that keep its scale but not what it skips.
TEST(Sanity, CountsAStepThatIsNotSkipped) {
  struct Rule {
    double scale = kScalerStart;
    int good = 0;
    double after(bool overflow) {
      good = overflow ? 0 : good + 1;
      if (overflow) scale /= 2;
      if (good == 2) scale *= 2, good = 0;
      return scale;
    }
  };
  const auto mismatches = [](auto&& updates) {
    Rule rule;
    int step = 0;
    return scaler_mismatches([&](bool overflow) {
      return ScalerStep{updates(step++, overflow), rule.after(overflow)};
    });
  };
  EXPECT_EQ(mismatches([](int, bool overflow) { return !overflow; }), 0);
  EXPECT_EQ(mismatches([](int, bool) { return true; }), 6) << "never skips: as many as the pattern overflows";
  EXPECT_EQ(mismatches([](int, bool) { return false; }), 6) << "always skips: the others";
  EXPECT_EQ(mismatches([](int step, bool overflow) { return step == 2 || !overflow; }), 1);
}

// Gradients of a loss of 2^-20 are subnormal in part, by another part at each scale. The steps without overflow have the scales
// 4096, 2048 and 256 of GradScaler's rule; the scale that stays is 1024. The ratios again, from a step with each of these.
TEST(Sanity, GivesTheFarthestRatioOfTheGradients) {
  TrialSpec spec = sanity_spec(kNet, "amp-fp16", "scaler");
  spec.settings.loss_factor = 0x1p-20;
  const auto norm = [&](const char* scaler) {
    TrialSpec own = spec;
    own.settings.scaler = models::scaler_of(scaler);
    Trial trial(own);
    trial.load_batch(0), trial.forward(), trial.backward();
    double sum = 0;
    for (const Param* param : trial.params())
      for (const double value : trial.gradient(*param)) sum += value * value;
    return std::sqrt(sum);
  };
  double farthest = 1;
  for (const char* scaler : {"static:4096", "static:2048", "static:256"}) {
    const double ratio = norm(scaler) / norm("static:1024");
    if (std::fabs(std::log(ratio)) > std::fabs(std::log(farthest))) farthest = ratio;
  }
  EXPECT_GT(std::fabs(farthest - 1), 1e-3) << "else the test says nothing";
  EXPECT_NEAR(number_of(sanity_harness().measure(spec), "sanity.gradient_ratio"), farthest,
              1e-3 * std::fabs(farthest - 1));
}

TEST(Sanity, FindsNoNanOnCleanDataAndOneWhereAnInputOverflows) {
  for (const char* policy : {"fp32", "fp16", "amp-fp16", "bf16"}) {
    const Findings findings = sanity_of(policy, "nan");
    EXPECT_EQ(number_of(findings, "sanity.nonfinite", "forward"), 0) << policy;
    EXPECT_EQ(number_of(findings, "sanity.nonfinite", "backward"), 0) << policy;
  }
  TrialSpec spec = sanity_spec(kNet, "fp16", "nan");
  spec.settings.input_scale = 1e5;
  EXPECT_GT(number_of(sanity_harness().measure(spec), "sanity.nonfinite", "forward"), 0);
}

TEST(Sanity, RefusesWhatACheckNeeds) {
  const Harness harness = sanity_harness();
  EXPECT_NE(refusal_of(harness, sanity_spec("mlp/b8_i16_h24_o10", "fp32", "batchnorm"))->find("no running"),
            std::string::npos);
  EXPECT_NE(refusal_of(harness, sanity_spec(kNet, "fp16", "scaler"))->find("no dynamic loss scale"), std::string::npos);
}

}  // namespace
}  // namespace halfmark::accuracy
