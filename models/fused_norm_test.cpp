// Batch norm with ReLU as one operation (Pass::fuses), with and without the addition of a branch, beside the separate
// operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/fused_testing.h"
#include "models/layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

using MakeLayers = std::function<LayerPtr(const Init&)>;

template <class... Layers>
std::vector<LayerPtr> list(Layers... layers) {
  std::vector<LayerPtr> all;
  (all.push_back(std::move(layers)), ...);
  return all;
}
LayerPtr norm(const Init& init, std::string name, int64_t channels, bool affine = true) {
  return batchnorm(init, std::move(name), channels,
                   {.momentum = 0.25, .epsilon = 1e-3, .affine = affine, .drawn_start = true});
}
LayerPtr conv(const Init& init, std::string name, int64_t in, int64_t out) {
  return conv2d(init, std::move(name), in, out, 1, {}, 1, false);
}

LayerPtr plain_chain(const Init& init) {
  return sequential("net", list(conv(init, "conv1", 3, 6), norm(init, "bn1", 6), relu("relu1"),
                                conv(init, "conv2", 6, 4), norm(init, "bn2", 4, false), relu("relu2")));
}
// Two blocks as in ResNet: with a convolution and a norm in the shortcut, and with the input itself.
LayerPtr blocks(const Init& init) {
  LayerPtr first = sequential("body1", list(conv(init, "conv1", 3, 6), norm(init, "bn1", 6), relu("relu1"),
                                            conv(init, "conv2", 6, 4), norm(init, "bn2", 4)));
  LayerPtr shortcut = sequential("shortcut", list(conv(init, "conv3", 3, 4), norm(init, "bn3", 4)));
  LayerPtr second = sequential("body2", list(conv(init, "conv4", 4, 4), norm(init, "bn4", 4)));
  return sequential("net", list(residual("add1", std::move(first), std::move(shortcut)), relu("relu2"),
                                residual("add2", std::move(second)), relu("relu3")));
}
LayerPtr vectors(const Init& init) {
  return sequential("net", list(linear(init, "fc", 3, 5), norm(init, "bn", 5), relu("relu")));
}
// The norm is inside a container of a container, and the sum of one block is the body of another.
LayerPtr nested(const Init& init) {
  LayerPtr inner = sequential("inner", list(conv(init, "conv1", 3, 3), norm(init, "bn1", 3)));
  LayerPtr outer = sequential("outer", list(residual("add1", std::move(inner))));
  return sequential("net", list(residual("add2", std::move(outer)), relu("relu1"),
                                checkpoint("again", sequential("twice", list(norm(init, "bn2", 3), relu("relu2"))))));
}
LayerPtr frozen(const Init& init) {
  return sequential("net", list(batchnorm(init, "bn", 3, {.frozen = true, .drawn_start = true}), relu("relu")));
}
LayerPtr narrow_sums(const Init& init) {
  return sequential("net", list(batchnorm(init, "bn", 3, {.accumulate = DType::f16}), relu("relu")));
}
LayerPtr other_activation(const Init& init) {
  return sequential("net", list(norm(init, "bn", 3), activation("sigmoid", "f")));
}

const Shape kImage = {4, 3, 5, 5};

TEST(FusedNorms, GiveTheNumbersOfSeparateOnes) {
  const std::pair<MakeLayers, Shape> networks[] = {
      {plain_chain, kImage}, {blocks, kImage}, {vectors, {7, 3}}, {nested, kImage}};
  for (const auto& [make, input] : networks) {
    SCOPED_TRACE(input.text());
    const Ran fused = run_layers(make, input, {.fuses = true}), separate = run_layers(make, input, {.fuses = false});
    expect_alike(fused, separate, 1e-13);
    EXPECT_GT(fused.operations.count("fused_batch_norm"), 0u);
    EXPECT_EQ(separate.operations.count("fused_batch_norm"), 0u);
  }
}

TEST(FusedNorms, LeaveTheOperationsThatTheyReplaceOut) {
  constexpr RunOptions kOptions{.device = "sim:hopper"};  // the CPU's rows make them of those operations
  const Ran chain = run_layers(plain_chain, kImage, kOptions);
  EXPECT_EQ(chain.operations.count("fused_batch_norm"), 2u);
  EXPECT_EQ(chain.operations.count("fused_batch_norm_backward"), 2u);
  for (const char* gone : {"batch_norm", "batch_norm_backward", "relu", "relu_backward"})
    EXPECT_EQ(chain.operations.count(gone), 0u) << gone;
  const Ran two = run_layers(blocks, kImage, kOptions);
  EXPECT_EQ(two.operations.count("fused_batch_norm"), 3u);
  EXPECT_EQ(two.operations.count("batch_norm"), 1u) << "that of the shortcut";
  EXPECT_EQ(two.operations.count("relu") + two.operations.count("relu_backward"), 0u);
  EXPECT_EQ(two.operations.count("add"), 2u) << "of gradients where the branches begin";
  const Ran inside = run_layers(nested, kImage, kOptions);
  EXPECT_EQ(inside.operations.count("relu"), 1u) << "after a sum of sums";
  EXPECT_EQ(inside.operations.count("fused_batch_norm"), 2u) << "the checkpoint runs it twice";
}

// ReLU of a rounded number is the rounded ReLU.
TEST(FusedNorms, HaveTheBitsOfSeparateOnesIfNothingIsAdded) {
  for (const char* policy : {"fp32", "bf16", "fp16", "amp-bf16", "fp16-bn32", "apex-o1"}) {
    SCOPED_TRACE(policy);
    const Ran fused = run_layers(plain_chain, kImage, {.policy = policy}),
              separate = run_layers(plain_chain, kImage, {.policy = policy, .fuses = false});
    EXPECT_GT(fused.operations.count("fused_batch_norm"), 0u);
    EXPECT_EQ(fused.output, separate.output);
    EXPECT_EQ(fused.input_gradient, separate.input_gradient);
    EXPECT_EQ(fused.gradients, separate.gradients);
    EXPECT_EQ(fused.states, separate.states);
  }
}

TEST(FusedNorms, RoundTheSumOnce) {
  const MakeLayers make = [](const Init& init) {
    return sequential("net", list(residual("add", norm(init, "bn", 3)), relu("relu")));
  };
  const Ran exact = run_layers(make, kImage, {.fuses = false});
  const double fused = distance(run_layers(make, kImage, {.policy = "bf16"}).output, exact.output),
               separate = distance(run_layers(make, kImage, {.policy = "bf16", .fuses = false}).output, exact.output);
  EXPECT_LT(fused, 0.9 * separate);
  EXPECT_GT(fused, 0) << "it rounds nothing";
}

TEST(FusedNorms, AreSeparateWhereTheOperationIsAnother) {
  for (const MakeLayers& make : {MakeLayers(frozen), MakeLayers(narrow_sums), MakeLayers(other_activation)})
    EXPECT_EQ(run_layers(make, kImage, {}).operations.count("fused_batch_norm"), 0u);
  EXPECT_EQ(run_layers(plain_chain, kImage, {.training = false}).operations.count("fused_batch_norm"), 0u);
  EXPECT_EQ(run_layers(plain_chain, kImage, {.policy = "keras-mixed-float16"}).operations.count("fused_batch_norm"),
            0u);
}

// One branch ends in a layer of the other: they run in their order, forward and backward.
LayerPtr linked(const Init& init) {
  LayerPtr body =
      sequential("body", list(side("fork", conv(init, "conv1", 3, 3)), conv(init, "conv2", 3, 3), norm(init, "bn", 3)));
  LayerPtr shortcut = sequential("shortcut", list(conv(init, "conv3", 3, 3), join("join", "fork", {4, 3, 5, 5}, true)));
  return sequential("net", list(residual("add", std::move(body), std::move(shortcut)), relu("relu")));
}

TEST(FusedNorms, RunTheBranchesInTheirOrder) {
  const Ran fused = run_layers(linked, kImage, {}), separate = run_layers(linked, kImage, {.fuses = false});
  EXPECT_GT(fused.operations.count("fused_batch_norm"), 0u);
  expect_alike(fused, separate, 1e-13);
}

// The shortcut runs the norm at the end of the body: its running statistics get the body's batch first.
LayerPtr shared_norm(const Init& init) {
  LayerPtr first = norm(init, "bn", 3);
  LayerPtr shortcut = sequential("shortcut", list(conv(init, "conv2", 3, 3), again("again", *first)));
  LayerPtr body = sequential("body", list(conv(init, "conv1", 3, 3), std::move(first)));
  return sequential("net", list(residual("add", std::move(body), std::move(shortcut)), relu("relu")));
}

TEST(FusedNorms, KeepTheOrderOfTheirStatistics) {
  const Ran fused = run_layers(shared_norm, kImage, {}), separate = run_layers(shared_norm, kImage, {.fuses = false});
  expect_alike(fused, separate, 1e-13);
}

// Autocast computes exp in fp32, so the sum is in fp32 and so is its ReLU.
TEST(FusedNorms, AddInTheWiderDtype) {
  const MakeLayers make = [](const Init& init) {
    return sequential("net", list(residual("add", norm(init, "bn", 3), activation("exp", "f")), relu("relu")));
  };
  const Ran fused = run_layers(make, kImage, {.policy = "amp-bf16"}),
            separate = run_layers(make, kImage, {.policy = "amp-bf16", .fuses = false});
  EXPECT_GT(fused.operations.count("fused_batch_norm"), 0u);
  const auto is_bf16 = [](const Ran& ran) {
    return std::ranges::all_of(ran.output, [](double y) { return round_to(kBf16, y) == y; });
  };
  EXPECT_FALSE(is_bf16(separate));
  EXPECT_FALSE(is_bf16(fused));
  EXPECT_LE(distance(fused.output, separate.output), 0x1p-8) << "the norm is rounded in one of them";
}

TEST(FusedNorms, ShowTheirResultToTaps) {
  const Ran fused = run_layers(blocks, kImage, {}), separate = run_layers(blocks, kImage, {.fuses = false});
  for (const char* seen : {"activation/relu1", "activation/relu2", "activation/relu3", "activation/conv2"})
    EXPECT_LE(distance(fused.seen.at(seen), separate.seen.at(seen)), 1e-13) << seen;
  EXPECT_FALSE(fused.seen.contains("activation/bn1")) << "it is not stored";
  EXPECT_TRUE(separate.seen.contains("activation/bn1"));
}

}  // namespace
}  // namespace halfmark::models
