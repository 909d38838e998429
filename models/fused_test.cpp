// Linear layers whose product, bias and activation are one operation (Pass::fuses), beside the separate operations.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/fused_testing.h"
#include "models/layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

// Forward and backward of layers with these numbers of features and this activation between them.
Ran run_chain(const std::string& activation_name, const std::vector<int64_t>& widths, bool ends_with_activation,
              bool fuses, const char* policy_name = "fp64", const Shape& rows = {6}, bool biased = true) {
  std::vector<int64_t> extents(rows.extents().begin(), rows.extents().end());
  extents.push_back(widths.front());
  return run_layers(
      [&](const Init& init) {
        std::vector<LayerPtr> layers;
        for (size_t i = 0; i + 1 < widths.size(); ++i) {
          const std::string number = std::to_string(i);
          layers.push_back(linear(init, "linear" + number, widths[i], widths[i + 1], biased));
          if (i + 2 < widths.size() || ends_with_activation)
            layers.push_back(activation(activation_name, "f" + number));
        }
        return sequential("chain", std::move(layers));
      },
      Shape(extents), {.policy = policy_name, .fuses = fuses});
}

TEST(FusedLayers, GiveTheNumbersOfSeparateOnes) {
  for (const char* activation_name : {"relu", "gelu_tanh", "sigmoid"})
    for (const bool ends_with_activation : {false, true})
      for (const std::vector<int64_t>& widths : {std::vector<int64_t>{5, 9}, {5, 9, 4}, {5, 9, 16, 3}})
        for (const Shape& rows : {Shape{6}, Shape{2, 3}}) {
          SCOPED_TRACE(std::string(activation_name) + " " + std::to_string(widths.size()));
          const Ran fused = run_chain(activation_name, widths, ends_with_activation, true, "fp64", rows);
          expect_alike(fused, run_chain(activation_name, widths, ends_with_activation, false, "fp64", rows), 1e-14);
        }
}

TEST(FusedLayers, LeaveTheOperationsThatTheyReplaceOut) {
  const Ran fused = run_chain("relu", {5, 9, 16, 3}, false, true);
  EXPECT_EQ(fused.operations.count("fused_matmul"), 3u);
  // The gradients of the last weight, and those through both activations.
  EXPECT_EQ(fused.operations.count("fused_matmul_backward"), 3u);
  for (const char* gone : {"relu", "relu_backward", "add_bias"}) EXPECT_EQ(fused.operations.count(gone), 0u) << gone;
  const Ran separate = run_chain("relu", {5, 9, 16, 3}, false, false);
  EXPECT_EQ(separate.operations.count("fused_matmul") + separate.operations.count("fused_matmul_backward"), 0u);
  EXPECT_EQ(separate.operations.count("add_bias"), 3u);
  const Ran other = run_chain("sigmoid", {5, 9, 3}, false, true);
  EXPECT_EQ(other.operations.count("fused_matmul"), 2u);
  EXPECT_EQ(other.operations.count("sigmoid"), 1u);
  const Ran unbiased = run_chain("relu", {5, 9, 3}, false, true, "fp64", {6}, false);
  EXPECT_EQ(unbiased.operations.count("fused_matmul"), 0u);
}

// Keras casts the input of each layer, which has a backward of its own.
TEST(FusedLayers, AreSeparateUnderKeras) {
  const Ran fused = run_chain("relu", {5, 9, 3}, false, true, "keras-mixed-float16"),
            separate = run_chain("relu", {5, 9, 3}, false, false, "keras-mixed-float16");
  EXPECT_EQ(fused.output, separate.output);
  EXPECT_EQ(fused.gradients, separate.gradients);
  EXPECT_EQ(fused.operations, separate.operations);
}

TEST(FusedLayers, RoundOnce) {
  const Ran exact = run_chain("relu", {64, 48}, true, false, "fp64");
  const double fused = distance(run_chain("relu", {64, 48}, true, true, "bf16").output, exact.output),
               separate = distance(run_chain("relu", {64, 48}, true, false, "bf16").output, exact.output);
  EXPECT_LT(fused, separate);
  EXPECT_GT(fused, separate / 4) << "both round the operands";
}

TEST(FusedLayers, KeepTheCastsOfAutocast) {
  const Ran fused = run_chain("gelu_tanh", {5, 8, 4}, true, true, "amp-bf16"),
            separate = run_chain("gelu_tanh", {5, 8, 4}, true, false, "amp-bf16");
  expect_alike(fused, separate, 0.03);
}

// The fp64 reference of a fused trial is that of a separate one.
TEST(FusedLayers, HaveTheSameReference) {
  TrialSpec spec = test_spec(kSmallMlp, "bf16");
  spec.settings.fused = true;
  EXPECT_FALSE(spec.oracle(Inputs::rounded).settings.fused);
  const auto step = [](const TrialSpec& given) {
    Trial trial(given);
    trial.load_batch(0);
    trial.forward(), trial.backward(), trial.update();
    return codes_of(trial);
  };
  EXPECT_EQ(step(spec.oracle(Inputs::drawn)), step(test_spec(kSmallMlp, "bf16").oracle(Inputs::drawn)));
}

}  // namespace
}  // namespace halfmark::models
