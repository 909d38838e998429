// The harness checkpointing: bits, bytes and operations, against what can be counted by hand.
#include "accuracy/experiments/checkpointing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "accuracy/experiments/trial_values.h"
#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kBert = "bert/b3_t6_n1_h2_d8_v64_o4";

TEST(Checkpointing, AddsTheForwardOfAllButTheLastLayer) {
  const Subject& subject = subject_named("mlp/b8_i16_h24_o10");
  const CheckpointedNetwork made = with_checkpoints(subject, 0);
  EXPECT_EQ(made.segments, 2u) << "sqrt of four layers: linear, ReLU, linear, ReLU";
  EXPECT_EQ(with_checkpoints(subject, 1).segments, 1u);
  EXPECT_EQ(with_checkpoints(subject, 100).segments, 4u);
  // Products of the three linear layers, two operations each.
  const double first = 16 * 24, second = 24 * 24, last = 24 * 10;
  const Findings findings = findings_of(checkpointing_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp32"));
  EXPECT_NEAR(number_at(findings, "checkpointing.added_flops"), (first + second) / (3 * (first + second + last)), 0.01);
}

TEST(Checkpointing, ComputesTheSameBitsAgainUnderAutocastAndWithDropout) {
  const Findings findings = findings_of(checkpointing_harness(), experiment_spec(kBert, "amp-fp16"));
  EXPECT_EQ(number_at(findings, "checkpointing.activations_equal"), 1);
  EXPECT_EQ(number_at(findings, "checkpointing.gradients_equal"), 1);
  EXPECT_EQ(number_at(findings, "checkpointing.loss_equal"), 1);
  EXPECT_GT(number_at(findings, "checkpointing.activations"), 0);
  EXPECT_LT(number_at(findings, "checkpointing.saved_ratio"), 1);
  // Controls: the comparison sees a second forward without the random numbers or the cast rules of the first.
  EXPECT_LT(number_at(findings, "checkpointing.activations_equal", "other_random_numbers"), 0.9);
  EXPECT_LT(number_at(findings, "checkpointing.activations_equal", "other_cast_rules"), 0.9);
}

TEST(Checkpointing, HasNoControlWhereThereIsNothingToForget) {
  const Findings findings = findings_of(checkpointing_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp16"));
  EXPECT_FALSE(has_number(findings, "checkpointing.activations_equal", "other_random_numbers"));
  EXPECT_FALSE(has_number(findings, "checkpointing.activations_equal", "other_cast_rules"));
  EXPECT_FALSE(has_number(findings, "checkpointing.statistics_equal"));
  EXPECT_TRUE(refusal_of(checkpointing_harness(), experiment_spec("relu/b2_c4_s5", "fp16")));
  EXPECT_TRUE(refusal_of(checkpointing_harness(), experiment_spec("checkpoint/b6_d8_h12", "fp16")));
}

// r = m b after one update from 0, and m b + (1 - m) m b = (2 - m) r after a second one with the same batch.
TEST(Checkpointing, UpdatesRunningMeansTwice) {
  TrialSpec spec = experiment_spec("convnet/b4_c1_s8_w4", "fp32");
  const auto means = [](const TrialSpec& of) {
    Trial trial(of);
    trial.load_batch(0);
    trial.forward();
    trial.backward();
    std::vector<double> found;
    for (const State* state : trial.states())
      if (state->name.ends_with("mean"))
        for (const double value : state->value.values()) found.push_back(value);
    return found;
  };
  const std::vector<double> once = means(spec);
  const Subject subject = with_network(*spec.subject, with_checkpoints(*spec.subject, 0).network, "checkpointed");
  spec.subject = &subject;
  const std::vector<double> twice = means(spec);
  ASSERT_EQ(once.size(), twice.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 1.9 * once[i], 1e-5) << i;
}

TEST(Checkpointing, KeepsSideBranchesWithTheirJoins) {
  for (const char* id :
       {"resnet/b2_s8_n1_w4", "erfnet/b2_s16x24_n1_w4_o4", "gpt/b2_t8_n1_h2_d8_v27", "detector/b2_s32_w4"}) {
    const Findings findings = findings_of(checkpointing_harness(), experiment_spec(id, "amp-bf16"));
    EXPECT_EQ(number_at(findings, "checkpointing.gradients_equal"), 1) << id;
    EXPECT_EQ(number_at(findings, "checkpointing.activations_equal"), 1) << id;
  }
}

}  // namespace
}  // namespace halfmark::accuracy
