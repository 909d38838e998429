// A convolution, its bias and the ReLU behind it as one operation (Pass::fuses), beside the separate operations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/chosen_rows_device_testing.h"
#include "models/fused_testing.h"
#include "models/layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

const Shape kConvInput = {2, 4, 7, 6};

struct ConvNet {
  bool biased = true;
  int groups = 1, kernel = 3;
  const char* activation = "relu";
};

// Two convolutions, the first one with a ReLU behind it, which is in a container of its own.
LayerPtr conv_net(const Init& init, const ConvNet& net) {
  const Window window{.pad_h = net.kernel / 2, .pad_w = net.kernel / 2};
  std::vector<LayerPtr> inner, layers;
  inner.push_back(conv2d(init, "conv1", 4, 8, net.kernel, window, net.groups, net.biased));
  layers.push_back(sequential("inner", std::move(inner)));
  layers.push_back(activation(net.activation, "f"));
  layers.push_back(conv2d(init, "conv2", 8, 3, 1, {.stride_h = 2, .stride_w = 2}, 1, net.biased));
  return sequential("net", std::move(layers));
}
Ran run_conv_net(const RunOptions& options, const ConvNet& net = {}) {
  return run_layers([&](const Init& init) { return conv_net(init, net); }, kConvInput, options);
}

std::vector<std::string> all_devices() {
  std::vector<std::string> names = {"cpu", "sim:hopper"};
  for (const kernels::DeviceRow& row : kernels::known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) names.push_back(row.name);
  return names;
}

TEST(FusedConvolutions, GiveTheNumbersOfSeparateOnes) {
  for (const std::string& device : all_devices())
    for (const ConvNet& net : {ConvNet{}, {.groups = 2}, {.groups = 4}, {.kernel = 1}})
      for (const bool training : {true, false}) {
        SCOPED_TRACE(device + " " + std::to_string(net.groups));
        const RunOptions options{.training = training, .device = device.c_str()};
        RunOptions apart = options;
        apart.fuses = false;
        const Ran fused = run_conv_net(options, net), separate = run_conv_net(apart, net);
        expect_alike(fused, separate, 1e-13);
        EXPECT_EQ(fused.operations.count("fused_conv2d"), 2u);
        EXPECT_EQ(separate.operations.count("fused_conv2d"), 0u);
      }
}

TEST(FusedConvolutions, LeaveTheOperationsThatTheyReplaceOut) {
  const Ran fused = run_conv_net({.device = "sim:hopper"});  // with a row that runs the convolution as a part
  for (const char* gone : {"add_bias", "relu"}) EXPECT_EQ(fused.operations.count(gone), 0u) << gone;
  EXPECT_EQ(fused.operations.count("relu_backward"), 1u);
  const Ran other = run_conv_net({.device = "sim:hopper"}, {.activation = "sigmoid"});
  EXPECT_EQ(other.operations.count("fused_conv2d"), 2u) << "with the bias alone";
  EXPECT_EQ(other.operations.count("sigmoid"), 1u);
  const Ran unbiased = run_conv_net({.device = "sim:hopper"}, {.biased = false});
  EXPECT_EQ(unbiased.operations.count("fused_conv2d"), 0u);
  EXPECT_EQ(unbiased.operations.count("relu"), 1u);
}

TEST(FusedConvolutions, RoundTheirResultOnce) {
  const std::vector<double> exact = run_conv_net({.fuses = false}).output;
  for (const std::string& device : all_devices())
    for (const char* policy : {"bf16", "amp-bf16", "amp-fp16"}) {
      const auto distance_of = [&](bool fuses) {
        return distance(run_conv_net({.policy = policy, .fuses = fuses, .device = device.c_str()}).output, exact);
      };
      EXPECT_LT(distance_of(true), distance_of(false)) << device << " " << policy;
    }
}

// 256 + 1 and a bias of 0.5 in bf16, which has steps of 2 there: 257 alone becomes 256, and so does 256.5.
TEST(FusedConvolutions, AddTheBiasToUnroundedSums) {
  const auto output = [](bool fuses) {
    const std::shared_ptr<Device> cpu = open_device("cpu");
    const Policy& policy = policy_named("bf16");
    const LayerPtr layer = conv2d(Init{*cpu, policy, RandomKey(1)}, "conv", 2, 1, 1);
    layer->params()[0]->value.fill(1);
    layer->params()[1]->value.fill(0.5);
    Pass pass(*cpu, policy, true);
    pass.fuses = fuses;
    const Tensor x = Tensor::from(*cpu, {1, 2, 1, 1}, DType::bf16, std::vector<double>{256, 1});
    return layer->forward(pass, x, nullptr).values()[0];
  };
  EXPECT_EQ(output(true), 258);
  EXPECT_EQ(output(false), 256);
}

TEST(FusedConvolutions, ShowTapsTheSameNamesButTheArgumentOfRelu) {
  const Ran fused = run_conv_net({}), separate = run_conv_net({.fuses = false});
  for (const auto& [name, values] : separate.seen) {
    const bool is_gone = name == "activation/conv1" || name == "gradient/f" || name == "activation/inner";
    EXPECT_EQ(fused.seen.contains(name), !is_gone) << name;
    if (!is_gone) {
      EXPECT_LE(distance(fused.seen.at(name), values), 1e-13) << name;
    }
  }
}

TEST(FusedConvolutions, AreSeparateUnderKeras) {
  const Ran fused = run_conv_net({.policy = "keras-mixed-float16"}),
            separate = run_conv_net({.policy = "keras-mixed-float16", .fuses = false});
  EXPECT_EQ(fused.operations, separate.operations);
  EXPECT_EQ(fused.output, separate.output);
}

// With a bias of 0 nothing is rounded once less: all gradients have the bits of separate operations.
TEST(FusedConvolutions, HaveTheGradientsOfSeparateOnes) {
  for (const std::string& device : all_devices())
    for (const char* policy : {"amp-bf16", "amp-fp16", "bf16", "fp32"}) {
      const auto ran = [&](bool fuses) {
        return run_layers(
            [](const Init& init) {
              const Start start{.bias = 0};
              std::vector<LayerPtr> layers;
              layers.push_back(conv2d(init, "conv1", 4, 8, 3,
                                      {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2}, 1, true, start));
              layers.push_back(relu("f"));
              layers.push_back(conv2d(init, "conv2", 8, 3, 1, {}, 1, true, start));
              return sequential("net", std::move(layers));
            },
            kConvInput, {.policy = policy, .fuses = fuses, .device = device.c_str()});
      };
      const Ran fused = ran(true), separate = ran(false);
      EXPECT_EQ(fused.output, separate.output) << device << " " << policy;
      EXPECT_EQ(fused.input_gradient, separate.input_gradient) << device << " " << policy;
      EXPECT_EQ(fused.gradients, separate.gradients) << device << " " << policy;
      if (std::string(policy) != "amp-bf16") continue;
      for (const char* bias : {"conv1.bias", "conv2.bias"})  // summed in the dtype of the convolution, as the weight's
        for (const double value : fused.gradients.at(bias)) EXPECT_EQ(value, round_to(kBf16, value)) << bias;
    }
}

// A block whose body ends with a convolution, before a ReLU: the sum is between them. A norm that sums the block before it, in a
// body that ends with a convolution before a ReLU.
TEST(FusedConvolutions, BesideTheSumsOfBlocksGiveTheNumbersOfSeparateOnes) {
  const auto make = [](const Init& init, bool sums) {
    std::vector<LayerPtr> body, tail, layers;
    body.push_back(conv2d(init, "conv1", 4, 4, 1));
    body.push_back(relu("relu1"));
    body.push_back(conv2d(init, "conv2", 4, 4, 3, {.pad_h = 1, .pad_w = 1}));
    layers.push_back(residual("block", sequential("body", std::move(body)), nullptr));
    if (sums) {
      tail.push_back(group_norm(init, "norm", 4, 2));
      tail.push_back(conv2d(init, "conv3", 4, 4, 1));
      layers.push_back(sequential("tail", std::move(tail)));
    }
    layers.push_back(relu("relu2"));
    return sequential("net", std::move(layers));
  };
  for (const std::string& device : all_devices())
    for (const bool sums : {false, true}) {
      const auto ran = [&](bool fuses) {
        return run_layers([&](const Init& init) { return make(init, sums); }, kConvInput,
                          {.fuses = fuses, .device = device.c_str()});
      };
      expect_alike(ran(true), ran(false), 1e-13);
    }
}

// The device's rows for convolutions with bias and ReLU are emulated, or there are none.
TEST(FusedConvolutions, AreSeparateWhereOnlyTheConvolutionIsReal) {
  for (const bool keeps_emulated : {true, false}) {
    kernels::DeviceWithChosenRows device([&](kernels::KernelTable& table) {
      std::erase_if(table.of<FusedConv2d>(),
                    [&](const auto& row) { return row.speed == kernels::Speed::real || !keeps_emulated; });
    });
    const Policy& policy = policy_named("fp32");
    const LayerPtr net = conv_net(Init{device, policy, RandomKey(7)}, {});
    std::vector<double> values(static_cast<size_t>(kConvInput.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(1).normal(i);
    const Tensor x = Tensor::from(device, kConvInput, DType::f32, values);
    std::vector<double> outputs[2];
    for (const bool fuses : {false, true}) {
      Pass pass(device, policy, true);
      pass.fuses = fuses;
      const KernelLog log;
      outputs[fuses] = net->forward(pass, x, nullptr).values();
      for (const LoggedKernel& one : log.entries()) EXPECT_NE(one.operation, "fused_conv2d");
    }
    EXPECT_EQ(outputs[true], outputs[false]);
  }
}

TEST(FusedConvolutions, UseNoEmulatedCodeWhereTheConvolutionIsReal) {
  for (const std::string& device : all_devices())
    for (const char* policy : {"fp64", "fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16", "amp-fp16-reduced"}) {
      const auto emulated = [&](bool fuses) {
        TrialSpec spec = test_spec("lenet5/b4_c1_s28_o16", policy);
        spec.device = open_device(device);
        spec.settings.fused = fuses;
        const KernelLog log;
        Trial(spec).train_step(0);
        uint64_t calls = 0;
        for (const LoggedKernel& one : log.entries())
          if (one.operation.find("conv2d") != std::string::npos && one.speed == kernels::Speed::emulated)
            calls += one.calls;
        return calls;
      };
      EXPECT_EQ(emulated(true) > 0, emulated(false) > 0) << device << " " << policy;
    }
}

}  // namespace
}  // namespace halfmark::models
