// The policies with a recipe: which layers they quantise, what they lose, on which devices they run.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/quantized_testing.h"

namespace halfmark::models {
namespace {

double flushed_gradients(const Policy& policy) {
  TrialSpec spec = test_spec(kMlp, "fp32");
  spec.policy = &policy;
  Trial trial(spec);
  QuantizationLog log;
  for (int step = 0; step < 5; ++step) trial.train_step(step);
  double flushed = 0, elements = 0;
  for (const QuantizedOnce& one : log.entries())
    if (one.operand == "dy") flushed += one.flushed, elements += one.elements;
  return flushed / elements;
}

// The negative control of scaling: with the scale 1, most gradients of a mean loss are below half of the least e4m3 code, 2^-10.
TEST(QuantizedProducts, FlushMostGradientsWithoutScales) {
  const Quantizer unscaled{"unscaled",
                           "the scale 1",
                           DType::e4m3,
                           DType::f32,
                           0,
                           0,
                           Quantizer::Nan::dropped,
                           [](const TileFacts&, const Format&) {
                             return TileScale{1, 1, 0};
                           }};
  QuantizedProducts products = quantized_products_named("fp8-current");
  products.data.first.rule = products.weights.first.rule = &unscaled;
  const double without = flushed_gradients(with_products(products));
  EXPECT_GT(without, 0.25);
  for (const char* recipe : {"fp8-current", "fp8-block", "mxfp8"})
    EXPECT_LT(flushed_gradients(policy_named(recipe)), without / 10) << recipe;
}

std::set<std::string> products_of(const std::string& subject, std::string_view policy) {
  Trial trial(test_spec(subject, policy));
  const KernelLog log;
  trial.train_step(0);
  std::set<std::string> names;
  for (const LoggedKernel& one : log.entries())
    if (one.operation.find("matmul") != std::string::npos || one.operation == "quantize") names.insert(one.operation);
  return names;
}

TEST(QuantizedProducts, AreThoseOfLinearLayersOnly) {
  for (const char* recipe : kRecipes) {
    EXPECT_EQ(products_of(kSmallMlp, recipe), (std::set<std::string>{"quantize", "scaled_matmul"})) << recipe;
    EXPECT_FALSE(products_of("lstm/b2_t5_i6_h4", recipe).contains("quantize")) << recipe;
  }
  EXPECT_EQ(products_of(kSmallMlp, "amp-bf16"), std::set<std::string>{"matmul"});
}

std::set<std::string> layers_in_log(const TrialSpec& spec) {
  Trial trial(spec);
  const QuantizationLog log;
  trial.train_step(0);
  std::set<std::string> names;
  for (const QuantizedOnce& one : log.entries()) names.insert(one.layer);
  return names;
}

// What the network's table says is what a step does.
TEST(QuantizedProducts, AreThoseOfTheLayersThatTheNetworkNames) {
  LayerSpec normed{"linear", "normed", {{"out", int64_t{24}}}}, branched{"add", "block"};
  normed.arguments["weight_norm"] = true;
  branched.branches = {{LayerSpec{"linear", "inner", {{"out", int64_t{24}}}}}, {}};
  Subject own = subject_of_network({16, 32}, DataKind::normal, 0,
                                   Network{{LayerSpec{"linear", "first", {{"out", int64_t{24}}}}, normed, branched,
                                            LayerSpec{"layer_norm", "norm"}, LayerSpec{"relu", "relu"}}});
  own.name = "network", own.sizes = "b16";
  std::vector<const Subject*> all = {&own};
  for (const char* name : {kSmallMlp, "resnet50/b2_s16_n1_w2_o10", "gpt/b2_t8_n1_h2_d16_v27", "lstm/b2_t5_i6_h4"})
    all.push_back(&subject_named(name));
  for (const Subject* subject : all) {
    const std::vector<std::string> named = quantised_layers(*subject->network);
    TrialSpec spec = test_spec(kSmallMlp, "fp8-current");
    spec.subject = subject;
    EXPECT_EQ(layers_in_log(spec), std::set<std::string>(named.begin(), named.end())) << subject->id();
  }
  EXPECT_EQ(quantised_layers(*own.network), (std::vector<std::string>{"first", "inner"}));
}

// Weight norm and a weight of an embedding stay as under amp-bf16, bit for bit.
TEST(QuantizedProducts, LeaveOtherLayersAsUnderAmpBf16) {
  LayerSpec normed{"linear", "fc", {{"out", int64_t{24}}}};
  normed.arguments["weight_norm"] = true;
  for (const LayerSpec& layer : {normed, LayerSpec{"layer_norm", "norm"}}) {
    const auto output_of = [&](std::string_view policy) {
      Subject subject = subject_of_network({16, 32}, DataKind::normal, 0, Network{{layer}});
      subject.name = "network", subject.sizes = "b16";
      TrialSpec spec = test_spec(kSmallMlp, policy);
      spec.subject = &subject;
      Trial trial(spec);
      trial.train_step(0);
      return codes_of(trial);
    };
    EXPECT_EQ(output_of("fp8-current"), output_of("amp-bf16"));
  }
}

TEST(QuantizedProducts, TrainAModel) {
  for (const char* recipe : kRecipes) {
    Trial trial(test_spec(kMlp, recipe));
    const double before = trial.train_step(0).loss;
    double after = 0;
    for (int step = 1; step < 60; ++step) after = trial.train_step(step).loss;
    EXPECT_LT(after, before / 2) << recipe;
  }
}

TrialSpec on_gpu(const std::string& device, const char* recipe) {
  TrialSpec spec = test_spec(kSmallMlp, recipe);
  spec.device = open_device(device);
  return spec;
}

TEST(QuantizedProducts, RunOnSimulatedGpusThatHaveTheInstructions) {
  for (const auto& [device, recipe] : {std::pair{"sim:ada", "fp8-delayed"},
                                       {"sim:hopper", "fp8-current"},
                                       {"sim:hopper", "fp8-block"},
                                       {"sim:blackwell", "fp8-block"},
                                       {"sim:blackwell", "mxfp8"},
                                       {"sim:blackwell-rtx", "nvfp4"}}) {
    SCOPED_TRACE(std::string(device) + " " + recipe);
    Trial trial(on_gpu(device, recipe)), cpu(test_spec(kSmallMlp, recipe));
    const KernelLog log;
    for (int step = 0; step < 2; ++step)
      EXPECT_NEAR(trial.train_step(step).loss, cpu.train_step(step).loss, 0.05);  // other sums, the same codes at first
    std::set<std::string> rows;
    for (const LoggedKernel& one : log.entries())
      if (one.operation == "scaled_matmul") rows.insert(one.row);
    EXPECT_EQ(rows, (std::set<std::string>{"reference", "tensor-core"})) << "of the CPU and of the GPU";
  }
}

TEST(QuantizedProducts, AreRefusedByGpusWithoutTheInstructions) {
  for (const auto& [device, recipe, reason] :
       {std::tuple{"sim:ampere", "fp8-delayed", "its tensor cores have no FP8"},
        {"sim:ada", "fp8-block", "ada has neither wgmma nor MX instructions"},
        {"sim:hopper", "mxfp8", "hopper has no instruction for e4m3 times e4m3 scaled by e8m0 per 32"},
        {"sim:hopper", "nvfp4", "hopper has no instruction for e2m1 times e2m1"}}) {
    Trial trial(on_gpu(device, recipe));
    try {
      trial.train_step(0);
      FAIL() << device << " ran " << recipe;
    } catch (const Unsupported& refusal) {
      EXPECT_NE(std::string(refusal.what()).find(reason), std::string::npos) << refusal.what();
      EXPECT_EQ(std::string(refusal.what()).find('\n'), std::string::npos);
    }
  }
}

// Forward accumulates fast, so Hopper keeps 13 fraction bits there; both gradients add chains of 128 products in fp32.
TEST(QuantizedProducts, AccumulateInFewerBitsOnHopperInForwardOnly) {
  const std::shared_ptr<Device> hopper = open_device("sim:hopper");
  const auto result = [&](bool fast) {
    const auto ones = [&](double first) {
      std::vector<double> values(512, 0x1p-7);
      values[0] = first;
      return Scaled{.codes = Tensor::from(*hopper, {1, 512}, DType::e4m3, values), .scales = {}};
    };
    const Scaled a = ones(8), b = ones(8);
    Tensor out(*hopper, {1, 1}, DType::f32);
    run(ScaledMatmul{.a = a, .b = b, .out = out, .fast_accumulate = fast});
    return out.values()[0];
  };
  // 64 and 511 products of 2^-14. With 64 in the sum, 13 fraction bits below 2^6 reach 2^-7: all in that chain are lost.
  EXPECT_EQ(result(true), 64);
  EXPECT_EQ(result(false), 64 + 384 * 0x1p-14);
  for (const char* recipe : {"fp8-delayed", "fp8-current", "mxfp8"}) {
    const QuantizedProducts& products = quantized_products_named(recipe);
    EXPECT_TRUE(products.forward.fast_accumulate && !products.data.fast_accumulate &&
                !products.weights.fast_accumulate);
  }
  EXPECT_FALSE(quantized_products_named("fp8-block").forward.fast_accumulate);
}

}  // namespace
}  // namespace halfmark::models
