// A recorded step repeats the arithmetic of a launched one: on a device that repeats closures, and on a GPU if there is one.
#include "models/recorded_step.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/repeating_device_testing.h"
#include "models/quantized_products.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

// Each pass takes the mask of its padding from the host.
Subject masked_attention(bool fused) {
  LayerSpec attention{"self_attention",
                      "attention",
                      {{"heads", int64_t{2}}, {"fused", fused}, {"lengths", std::vector<double>{8, 5, 3}}}};
  if (!fused) attention.arguments["mask_value"] = -1e4;
  Subject subject = subject_of_network(
      {4, 8, 16}, DataKind::normal, 0,
      Network{{{"linear", "qkv", {{"out", int64_t{48}}}}, attention, {"linear", "out", {{"out", int64_t{16}}}}}});
  subject.name = "masked", subject.sizes = fused ? "f1" : "f0";
  return subject;
}

// Each pass takes the weights of the classes from the host.
Subject weighted_mlp() {
  Subject subject = subject_named(kSmallMlp);
  for (int c = 0; c < 10; ++c) subject.loss.class_weights.push_back(1 + c % 3);
  return subject;
}

class RecordedSteps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "repeating") {
      repeating_ = std::make_shared<kernels::RepeatingDevice>();
      device_ = repeating_;
      return;
    }
    for (const kernels::DeviceRow& row : kernels::known_devices())
      if (row.name == name && row.absent.empty()) device_ = open_device(name);
    if (!device_) GTEST_SKIP() << "there is no " << name;
  }
  TrialSpec spec(const std::string& subject, std::string_view policy) const {
    TrialSpec own = test_spec(subject, policy);
    own.device = device_;
    own.settings.optimizer.kind = OptimizerKind::sgd;  // Adam's step depends on its number
    return own;
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<kernels::RepeatingDevice> repeating_;
};

TEST_P(RecordedSteps, GiveTheBitsOfLaunchedOnes) {
  const Subject masked = masked_attention(true), masked_in_steps = masked_attention(false), weighted = weighted_mlp();
  for (const Subject* subject : {&subject_named(kSmallMlp), &subject_named(kSmallConvnet),
                                 &subject_named("gpt/b2_t8_n2_h2_d16_v27"), &masked, &masked_in_steps, &weighted})
    for (const char* policy : {"fp32", "amp-fp16", "amp-bf16", "fp16-master", "fp8-delayed"}) {
      if (repeating_ && policy == std::string_view("fp8-delayed"))
        continue;  // its kernels on the CPU read scales as a host
      for (const bool fused : {false, true}) {
        TrialSpec of_both = spec(kSmallMlp, policy);
        of_both.subject = subject;
        of_both.settings.fused = fused;
        const std::string what = subject->id() + " " + policy + (fused ? " fused" : "");
        Trial recorded(of_both), launched(of_both);
        recorded.load_batch(0), launched.load_batch(0);
        RecordedStep step(recorded);
        const auto at_first = codes_of(recorded);
        for (int i = 0; i < 3; ++i) step.run();
        const int taken = repeating_ ? 6 : 5;  // the repeating device takes one as it records
        for (int i = 0; i < taken; ++i) launched.forward(), launched.backward(), launched.update();
        EXPECT_EQ(codes_of(recorded), codes_of(launched)) << what;
        EXPECT_NE(codes_of(recorded), at_first) << what;
      }
    }
}

// A checkpoint computes its body again, with the scale of the forward before the update.
Subject checkpointed_linear() {
  Subject subject =
      subject_of_network({16, 32}, DataKind::normal, 0,
                         Network{{{"checkpoint", "again", {}, {{{"linear", "fc", {{"out", int64_t{24}}}}}}},
                                  {"linear", "last", {{"out", int64_t{16}}}}}});
  subject.name = "checkpointed", subject.sizes = "b16";
  return subject;
}

TEST_P(RecordedSteps, UpdateTheScalesOfDelayedScaling) {
  if (repeating_) GTEST_SKIP() << "kernels of products with scales on the CPU read the scales as a host does";
  const Subject checkpointed = checkpointed_linear();
  TrialSpec of_both = spec(kSmallMlp, "fp8-delayed");
  of_both.subject = &checkpointed;
  Trial recorded(of_both), launched(of_both);
  recorded.load_batch(0), launched.load_batch(0);
  RecordedStep step(recorded);
  for (int i = 0; i < 2; ++i) launched.forward(), launched.backward(), launched.update();
  ASSERT_EQ(codes_of(recorded), codes_of(launched));
  // Each input is eight times as large as the one before, so that each step needs another scale than the one before.
  std::vector<double> input = launched.input().values();
  for (int i = 0; i < 3; ++i) {
    for (double& x : input) x *= 8;
    recorded.input().set_values(input), launched.input().set_values(input);
    step.run();
    launched.forward(), launched.backward(), launched.update();
    EXPECT_EQ(codes_of(recorded), codes_of(launched)) << i;
  }
}

TEST_P(RecordedSteps, AreSkippedWhenAGradientIsNotFinite) {
  Trial trial(spec(kSmallMlp, "amp-fp16"));
  trial.load_batch(0);
  RecordedStep step(trial);
  const std::vector<double> given = trial.input().values();
  const auto before = codes_of(trial);
  trial.input().fill(std::numeric_limits<double>::infinity());
  for (int i = 0; i < 2; ++i) {
    step.run();
    EXPECT_TRUE(trial.overflowed());
  }
  EXPECT_EQ(codes_of(trial), before);
  trial.input().set_values(given);
  step.run();
  EXPECT_FALSE(trial.overflowed());
  EXPECT_NE(codes_of(trial), before);
}

// The flag of a launched step says nothing about a recorded one that has run since.
TEST_P(RecordedSteps, TellOfTheirOwnOverflow) {
  Trial trial(spec(kSmallMlp, "amp-fp16"));
  trial.load_batch(0);
  RecordedStep step(trial);
  trial.forward(), trial.backward();
  EXPECT_TRUE(trial.update());
  trial.input().fill(std::numeric_limits<double>::infinity());
  step.run();
  EXPECT_TRUE(trial.overflowed());
}

TEST_P(RecordedSteps, AreMadeAfterTheScaleHasBecomeLowEnough) {
  TrialSpec own = spec(kSmallMlp, "amp-fp16");
  own.settings.scaler = own.policy->scaler;
  own.settings.scaler->initial = 0x1p60;
  Trial trial(own);
  trial.load_batch(0);
  RecordedStep step(trial);
  EXPECT_LT(trial.scaler().scale(), 0x1p50);
  step.run();
  EXPECT_FALSE(trial.overflowed());
}

TEST_P(RecordedSteps, AreNotMadeOfStepsThatWaitForTheDevice) {
  Trial trial(spec(kSmallMlp, "fp8-delayed"));
  trial.load_batch(0);
  {
    const QuantizationLog log;  // reads what each quantisation has lost
    EXPECT_THROW(RecordedStep step(trial), Unsupported);
  }
  trial.forward(), trial.backward();
  EXPECT_TRUE(trial.update());
}

INSTANTIATE_TEST_SUITE_P(On, RecordedSteps, testing::Values("repeating", "cuda:0"),
                         [](const auto& device) { return std::string(device.param).substr(0, 4); });

TEST(RecordedStep, IsOneRecordingAlsoUnderADynamicLossScale) {
  for (const char* policy : {"fp32", "fp16-static", "amp-fp16"}) {
    const auto device = std::make_shared<kernels::RepeatingDevice>();
    TrialSpec spec = test_spec(kSmallMlp, policy);
    spec.device = device;
    Trial trial(spec);
    trial.load_batch(0);
    const RecordedStep step(trial);
    EXPECT_EQ(device->recorded, 1) << policy;
  }
}

TEST(RecordedStep, IsNotMadeOnTheCpu) {
  Trial trial(test_spec(kSmallMlp, "fp32"));
  trial.load_batch(0);
  EXPECT_THROW(RecordedStep step(trial), Unsupported);
}

}  // namespace
}  // namespace halfmark::models
