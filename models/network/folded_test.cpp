// Batch norm folded into the convolution before it.
#include "models/network/folded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "models/network/network.h"
#include "models/subject.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

LayerSpec conv(const std::string& name, Arguments more = {}) {
  LayerSpec spec{"conv2d", name, {{"out", int64_t{4}}, {"kernel", int64_t{1}}, {"bias", false}}};
  for (const auto& [key, value] : more) spec.arguments.insert_or_assign(key, value);
  return spec;
}

TEST(FoldBatchnorm, TakesThoseThatFollowAConvolutionDirectlyInBranchesToo) {
  const Network network{{conv("conv1"),
                         {"batchnorm2d", "bn1", {{"epsilon", 0.5}}},
                         {"batchnorm2d", "second"},
                         conv("normed", {{"weight_norm", true}}),
                         {"batchnorm2d", "after_normed"},
                         conv("conv2"),
                         {"relu", "relu"},
                         {"batchnorm2d", "after_relu"},
                         {"add", "sum", {}, {{conv("conv3"), {"batchnorm2d", "bn3"}}, {}}}}};
  const FoldedNetwork folded = fold_batchnorm(network);
  ASSERT_EQ(folded.pairs.size(), 2u);
  EXPECT_EQ(folded.pairs[0].convolution, "conv1");
  EXPECT_EQ(folded.pairs[0].batchnorm, "bn1");
  EXPECT_EQ(folded.pairs[0].epsilon, 0.5);
  EXPECT_EQ(folded.pairs[1].convolution, "conv3");
  EXPECT_EQ(folded.pairs[1].epsilon, 1e-5);
  std::vector<std::string> names;
  for (const LayerSpec& layer : folded.network.layers) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1", "second", "normed", "after_normed", "conv2", "relu", "after_relu",
                                             "sum"}));
  EXPECT_EQ(folded.network.layers.back().branches[0].size(), 1u);
  EXPECT_EQ(output_shape(folded.network, {2, 4, 3, 3}), output_shape(network, {2, 4, 3, 3}));
}

// By hand: s = 3 / sqrt(3.75 + 0.25) = 1.5 and -2 / sqrt(0.75 + 0.25) = -2; the bias is (1 - 2) 1.5 + 0.5 and (0 - 4) -2 + 1.
TEST(FoldBatchnorm, ScalesTheWeightAndMovesTheBias) {
  const NamedValues made = folded_values({{"conv", "bn", 0.25}}, {{"conv.weight", {1, 2, 3, 4}},
                                                                  {"conv.bias", {1, 0}},
                                                                  {"bn.scale", {3, -2}},
                                                                  {"bn.shift", {0.5, 1}},
                                                                  {"bn.running_mean", {2, 4}},
                                                                  {"bn.running_variance", {3.75, 0.75}},
                                                                  {"fc.weight", {7}}});
  EXPECT_EQ(made, (NamedValues{{"conv.weight", {1.5, 3, -6, -8}}, {"conv.bias", {-1, 9}}, {"fc.weight", {7}}}));
}

TEST(FoldBatchnorm, NeedsTheStatistics) {
  EXPECT_THROW(folded_values({{"conv", "bn", 0.25}}, {{"conv.weight", {1, 2}}}), Error);
}

// After a training, so that no statistic has its initial value. In fp64 both evaluations differ by roundings only.
TEST(FoldBatchnorm, GivesTheSameEvaluationInFp64) {
  for (const char* subject : {"convnet/b4_c1_s8_w4", "resnet/b2_s8_n1_w4", "resnet50/b2_s16_n1_w2_o10"}) {
    TrialSpec spec = test_spec("mlp/b8_i16_h24_o10", "fp32");
    spec.subject = &subject_named(subject);
    spec = spec.oracle(Inputs::drawn);
    Trial trial(spec);
    ASSERT_GT(trial.foldable(), 0u) << subject;
    for (int step = 0; step < 3; ++step) trial.train_step(step);
    const Policy& fp64 = *spec.policy;
    const double loss = trial.evaluate(64, &fp64).loss, folded = trial.evaluate(64, &fp64, EvaluatedForm::folded).loss;
    EXPECT_NEAR(folded, loss, 1e-12 * std::fabs(loss)) << subject;
    const Policy& fp16 = policy_named("fp16");
    EXPECT_NE(trial.evaluate(64, &fp16, EvaluatedForm::folded).loss, folded) << "the policy is used";
    // Not in fp16, whose losses are coarse, nor in fp32, whose products are fine: either may be equal.
    const Policy& tf32 = policy_named("tf32");
    EXPECT_NE(trial.evaluate(64, &tf32, EvaluatedForm::folded).loss, trial.evaluate(64, &tf32).loss)
        << "roundings of a folded model are others";
  }
}

TEST(FoldBatchnorm, FindsNothingInAModelWithoutBatchNorm) { EXPECT_EQ(Trial(test_spec(kMlp, "fp32")).foldable(), 0u); }

// A layer that runs again has another neighbour there.
TEST(FoldBatchnorm, LeavesPairsOfWhichALayerRunsAgain) {
  const LayerSpec bn{"batchnorm2d", "bn1"}, relu{"relu", "relu"}, pool{"global_avg_pool2d", "pool"},
      flatten{"flatten", "flatten"}, fc{"linear", "fc", {{"out", int64_t{4}}}};
  const auto again = [](const char* of) { return LayerSpec{"again", "again", {{"of", std::string(of)}}}; };
  struct Form {
    std::vector<LayerSpec> layers;
    size_t pairs;
  };
  for (const Form& form :
       {Form{{conv("conv1"), bn, relu, pool, flatten, fc}, 1},
        Form{{conv("conv1"), bn, relu, again("conv1"), pool, flatten, fc}, 0},
        Form{{conv("conv1"), bn, relu, conv("conv2"), again("bn1"), pool, flatten, fc}, 0},
        Form{{conv("conv1"), bn, conv("conv2"), {"batchnorm2d", "bn2"}, again("conv2"), pool, flatten, fc}, 1},
        Form{{{"checkpoint", "kept", {}, {{conv("conv1"), bn, relu}}}, pool, flatten, fc}, 1}}) {
    Subject subject = subject_of_network({4, 4, 3, 3}, DataKind::images, 4, Network{form.layers});
    subject.name = "folded", subject.sizes = "b4";
    TrialSpec spec = test_spec(kSmallMlp, "fp32");
    spec.subject = &subject;
    spec = spec.oracle(Inputs::drawn);
    Trial trial(spec);
    for (int step = 0; step < 3; ++step) trial.train_step(step);
    EXPECT_EQ(trial.foldable(), form.pairs);
    if (form.pairs == 0) continue;
    const double loss = trial.evaluate(8, spec.policy).loss;
    EXPECT_NEAR(trial.evaluate(8, spec.policy, EvaluatedForm::folded).loss, loss, 1e-9 * std::fabs(loss));
  }
}

}  // namespace
}  // namespace halfmark::models
