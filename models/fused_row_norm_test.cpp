// Norms of rows that round their result for the linear layer behind them (Pass::fuses), beside separate casts.
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
    EXPECT_EQ(without_bias.operations.count("cast") + 2, separate.operations.count("cast")) << policy;
    EXPECT_EQ(without_bias.output, separate.output) << policy;
    EXPECT_EQ(without_bias.input_gradient, separate.input_gradient) << policy;
    EXPECT_EQ(without_bias.gradients, separate.gradients) << policy;
  }
}

TEST(FusedRowNorms, HaveTheBitsOfSeparateCasts) {
  std::vector<const char*> devices = {"cpu", "sim:hopper"};
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

// A residual block whose body begins with the norm: the gradient that goes on beside the norm is added by its operation.
Ran run_residual(const RunOptions& options, bool apart, bool centred = true) {
  return run_layers(
      [&](const Init& init) {
        std::vector<LayerPtr> layers;
        if (apart) layers.push_back(flatten("nothing"));
        layers.push_back(centred ? layer_norm(init, "norm", 40) : rms_norm(init, "norm", 40));
        layers.push_back(linear(init, "linear", 40, 40));
        return residual("block", sequential("body", std::move(layers)), nullptr);
      },
      Shape{6, 40}, options);
}

TEST(FusedRowNorms, AddTheGradientThatGoesOnBesideThemWithTheBitsOfAnAddition) {
  std::vector<const char*> devices = {"cpu", "sim:hopper"};
  for (const kernels::DeviceRow& row : kernels::known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) devices.push_back("cuda:0");
  for (const char* device : devices)
    for (const char* policy : {"amp-bf16", "amp-fp16", "bf16", "fp16", "fp32", "fp64", "keras-mixed-float16"})
      for (const bool centred : {true, false}) {
        const RunOptions options{.policy = policy, .device = device};
        const Ran fused = run_residual(options, false, centred), apart = run_residual(options, true, centred);
        const std::string what = std::string(device) + " " + policy;
        EXPECT_EQ(fused.output, apart.output) << what;
        EXPECT_EQ(fused.input_gradient, apart.input_gradient) << what;
        EXPECT_EQ(fused.gradients, apart.gradients) << what;
        EXPECT_EQ(apart.operations.count("normalize_rows_backward_add"), 0u) << what;
        EXPECT_TRUE(fused.seen.contains("gradient/norm")) << what;
        for (const auto& [name, values] : fused.seen) EXPECT_EQ(values, apart.seen.at(name)) << what << " " << name;
      }
}

// The block's input in fp32, as autocast gives it: one operation; what is cast after the norm is added by itself.
TEST(FusedRowNorms, AddTheGradientThatGoesOnBesideThemOnlyWhereTheDtypesAreAlike) {
  const auto count = [](const char* policy, bool fuses) {
    return run_residual({.policy = policy, .fuses = fuses}, false).operations.count("normalize_rows_backward_add");
  };
  EXPECT_EQ(count("fp32", true), 1u);
  EXPECT_EQ(count("bf16", true), 1u);
  EXPECT_EQ(count("fp32", false), 0u);
  EXPECT_EQ(count("amp-bf16", true), 0u) << "the input of the test is bf16, and the norm reads fp32";
}

// Two norms of each block, and one after the last block: forward, the first has no sum before it, and backward the last one has
// no branch beside it.
TEST(FusedRowNorms, AddWithinTheNormsOfATransformerUnderAutocast) {
  for (const bool fused : {true, false}) {
    TrialSpec spec = test_spec("gpt/b2_t8_n1_h2_d8_v27", "amp-bf16");
    spec.settings.fused = fused;
    Trial trial(spec);
    const KernelLog log;
    trial.train_step(0);
    uint64_t calls = 0, bytes = 0, sums = 0, bytes_of_sums = 0;
    for (const LoggedKernel& one : log.entries()) {
      if (one.operation == "normalize_rows_backward_add") calls += one.calls, bytes += one.read + one.written;
      if (one.operation == "add_normalize_rows") sums += one.calls, bytes_of_sums += one.read + one.written;
    }
    EXPECT_EQ(calls, fused ? 2u : 0u);
    EXPECT_EQ(sums, fused ? 2u : 0u);
    if (!fused) continue;
    // x, the addend and the result of fp32, dy of bf16; mean and inverse of 16 rows; scale and both gradients of parameters.
    constexpr uint64_t kValues = 2 * 8 * 8, kRows = 16, kWidth = 8;
    EXPECT_EQ(bytes, 2 * (kValues * (3 * 4 + 2) + 2 * 4 * kRows + 3 * 4 * kWidth));
    // A branch and the result of bf16, the other branch and the sum of fp32; scale and shift.
    EXPECT_EQ(bytes_of_sums, 2 * (kValues * (2 * 4 + 2 * 2) + 2 * 4 * kRows + 2 * 4 * kWidth));
  }
}

// Blocks one after the other, and a norm at their end: each sum goes to the norm after it. `apart`: something is between them.
struct Blocks {
  bool apart = false, centred = true;
  bool shortcut = false;       // a layer on the other branch of the first block
  bool nested = false;         // the second block is in a sequence of its own, and its body begins with a block
  bool ends_with_norm = true;  // the last layers are a norm and a linear layer
  bool norm_within = false;    // nested: behind the block at the start of the body is a norm, which sums that block
};
Ran run_blocks(const RunOptions& options, const Blocks& blocks) {
  return run_layers(
      [&](const Init& init) {
        int count = 0, apart = 0;
        const auto norm = [&] {
          const std::string name = "norm" + std::to_string(++count);
          return blocks.centred ? layer_norm(init, name, 40, 1e-2) : rms_norm(init, name, 40, 1e-3);
        };
        const auto linear_layer = [&] { return linear(init, "linear" + std::to_string(++count), 40, 40); };
        const auto body = [&] {
          std::vector<LayerPtr> layers;
          layers.push_back(norm()), layers.push_back(linear_layer());
          return sequential("body" + std::to_string(++count), std::move(layers));
        };
        std::vector<LayerPtr> layers;
        const auto between = [&](std::vector<LayerPtr>& of) {
          if (blocks.apart) of.push_back(flatten("nothing" + std::to_string(++apart)));
        };
        layers.push_back(norm());  // autocast: the branches beside the blocks are f32
        layers.push_back(residual("block1", body(), blocks.shortcut ? linear_layer() : nullptr)), between(layers);
        if (blocks.nested) {
          std::vector<LayerPtr> inner, outer;
          inner.push_back(residual("inner", body(), nullptr));
          if (blocks.norm_within) between(inner), inner.push_back(norm());
          inner.push_back(linear_layer());
          outer.push_back(residual("block2", sequential("deep", std::move(inner)), linear_layer()));
          layers.push_back(sequential("outer", std::move(outer)));
        } else {
          layers.push_back(residual("block2", body(), nullptr));
        }
        between(layers);
        if (blocks.ends_with_norm) layers.push_back(norm()), layers.push_back(linear_layer());
        return sequential("net", std::move(layers));
      },
      Shape{6, 40}, options);
}

TEST(FusedRowNorms, SumTheBranchesOfTheBlockBeforeThemWithTheBitsOfAnAddition) {
  std::vector<const char*> devices = {"cpu", "sim:hopper"};
  for (const kernels::DeviceRow& row : kernels::known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) devices.push_back("cuda:0");
  for (const char* device : devices)
    for (const char* policy : {"amp-bf16", "amp-fp16", "bf16", "fp16", "fp32", "fp64", "keras-mixed-float16"})
      for (const Blocks& blocks : {Blocks{},
                                   {.centred = false},
                                   {.shortcut = true},
                                   {.nested = true},
                                   {.ends_with_norm = false},
                                   {.nested = true, .norm_within = true}}) {
        const RunOptions options{.policy = policy, .device = device};
        Blocks separate = blocks;
        separate.apart = true;
        const Ran fused = run_blocks(options, blocks), apart = run_blocks(options, separate);
        const std::string what = std::string(device) + " " + policy + (blocks.nested ? " nested" : "") +
                                 (blocks.shortcut ? " shortcut" : "") + (blocks.centred ? "" : " rms");
        EXPECT_EQ(fused.output, apart.output) << what;
        EXPECT_EQ(fused.input_gradient, apart.input_gradient) << what;
        EXPECT_EQ(fused.gradients, apart.gradients) << what;
        EXPECT_EQ(apart.operations.count("add_normalize_rows"), 0u) << what;
        // Under autocast a sum of two linear layers is cast before the norm; keras casts every input.
        const std::string rules = policy;
        const bool casts = rules.starts_with("keras") || (blocks.shortcut && rules.starts_with("amp"));
        EXPECT_EQ(fused.operations.count("add_normalize_rows"), casts                                     ? 0u
                                                                : blocks.norm_within                      ? 2u
                                                                : blocks.ends_with_norm && !blocks.nested ? 2u
                                                                                                          : 1u)
            << what;
        EXPECT_TRUE(fused.seen.contains("activation/block1")) << what;
        for (const auto& [name, values] : fused.seen) EXPECT_EQ(values, apart.seen.at(name)) << what << " " << name;
      }
}

// Group norms of images: pixels share the entries of scale and shift, and convolutions choose their layouts.
Ran run_image_blocks(const RunOptions& options, bool apart) {
  return run_layers(
      [&](const Init& init) {
        std::vector<LayerPtr> layers;
        const auto block = [&](const std::string& name) {
          std::vector<LayerPtr> body;
          body.push_back(group_norm(init, name + ".norm", 8, 2, 1e-3));
          body.push_back(conv2d(init, name + ".conv", 8, 8, 3, {.pad_h = 1, .pad_w = 1}));
          return residual(name, sequential(name + ".body", std::move(body)), nullptr);
        };
        const auto between = [&](const std::string& name) {
          if (apart) layers.push_back(dropout(name, 0));
        };
        layers.push_back(group_norm(init, "first", 8, 4));
        layers.push_back(block("block1")), between("nothing1");
        layers.push_back(block("block2")), between("nothing2");
        layers.push_back(group_norm(init, "last", 8, 8, 1e-2));
        return sequential("net", std::move(layers));
      },
      Shape{2, 8, 6, 5}, options);
}

TEST(FusedRowNorms, OfImagesSumTheBranchesBeforeThemWithTheBitsOfAnAddition) {
  std::vector<const char*> devices = {"cpu", "sim:hopper"};
  for (const kernels::DeviceRow& row : kernels::known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) devices.push_back("cuda:0");
  for (const char* device : devices)
    for (const char* policy : {"amp-bf16", "amp-fp16", "bf16", "fp32", "fp64"}) {
      const RunOptions options{.policy = policy, .device = device};
      const Ran fused = run_image_blocks(options, false), apart = run_image_blocks(options, true);
      const std::string what = std::string(device) + " " + policy;
      EXPECT_EQ(fused.output, apart.output) << what;
      EXPECT_EQ(fused.input_gradient, apart.input_gradient) << what;
      EXPECT_EQ(fused.gradients, apart.gradients) << what;
      EXPECT_EQ(apart.operations.count("add_normalize_rows"), 0u) << what;
      for (const auto& [name, values] : fused.seen) EXPECT_EQ(values, apart.seen.at(name)) << what << " " << name;
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
