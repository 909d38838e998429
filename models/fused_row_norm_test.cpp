// Norms of rows that round their result for the linear layer behind them (Pass::fuses), beside separate casts.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/fused_testing.h"
#include "models/layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

struct NormNet {
  bool biased = true;
  bool apart = false;  // a layer that changes nothing is between the norm and the linear layer
  bool centred = true;
};

Ran run_norm_net(const RunOptions& options, const NormNet& net = {}) {
  return run_layers(
      [&](const Init& init) {
        std::vector<LayerPtr> layers;
        layers.push_back(net.centred ? layer_norm(init, "norm", 40) : rms_norm(init, "norm", 40));
        if (net.apart) layers.push_back(flatten("nothing"));
        layers.push_back(linear(init, "linear", 40, 24, net.biased));
        return sequential("net", std::move(layers));
      },
      Shape{6, 40}, options);
}

TEST(FusedRowNorms, LeaveTheCastsOfTheirResultAndOfItsGradientOut) {
  for (const char* policy : {"amp-bf16", "amp-fp16"}) {
    const Ran fused = run_norm_net({.policy = policy}), apart = run_norm_net({.policy = policy}, {.apart = true});
    EXPECT_EQ(fused.operations.count("cast") + 2, apart.operations.count("cast")) << policy;
    EXPECT_EQ(fused.operations.count("normalize_rows"), 1u);
    const Ran without_bias = run_norm_net({.policy = policy}, {.biased = false}),
              separate = run_norm_net({.policy = policy, .fuses = false}, {.biased = false});
    EXPECT_EQ(without_bias.operations, separate.operations) << "the linear layer has nothing to fuse";
  }
}

TEST(FusedRowNorms, HaveTheBitsOfSeparateCasts) {
  std::vector<const char*> devices = {"cpu"};
  for (const kernels::DeviceRow& row : kernels::known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) devices.push_back("cuda:0");
  for (const char* device : devices)
    for (const char* policy : {"amp-bf16", "amp-fp16", "bf16", "fp16", "fp32", "fp64"})
      for (const bool centred : {true, false}) {
        const RunOptions options{.policy = policy, .device = device};
        const Ran fused = run_norm_net(options, {.centred = centred}),
                  apart = run_norm_net(options, {.apart = true, .centred = centred});
        EXPECT_EQ(fused.output, apart.output) << device << " " << policy;
        EXPECT_EQ(fused.input_gradient, apart.input_gradient) << device << " " << policy;
        EXPECT_EQ(fused.gradients, apart.gradients) << device << " " << policy;
      }
}

TEST(FusedRowNorms, ShowTheRoundedResultToTaps) {
  const Ran fused = run_norm_net({.policy = "amp-bf16"}),
            separate = run_norm_net({.policy = "amp-bf16", .fuses = false});
  std::vector<double> rounded = separate.seen.at("activation/norm");
  for (double& value : rounded) value = round_to(kBf16, value);
  EXPECT_EQ(fused.seen.at("activation/norm"), rounded);
  EXPECT_NE(separate.seen.at("activation/norm"), rounded);
}

TEST(FusedRowNorms, AreSeparateUnderKeras) {
  const Ran fused = run_norm_net({.policy = "keras-mixed-float16"}),
            separate = run_norm_net({.policy = "keras-mixed-float16", .fuses = false});
  EXPECT_EQ(fused.operations, separate.operations);
  EXPECT_EQ(fused.output, separate.output);
}

}  // namespace
}  // namespace halfmark::models
