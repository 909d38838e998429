// Delayed scaling in a layer: its scales over steps, and what must not change them. Numbers in brackets: the list of known
// mistakes of such code.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/quantized_testing.h"

namespace halfmark::models {
namespace {

QuantizedProducts delayed_by(size_t history, AmaxChoice algorithm) {
  QuantizedProducts products = quantized_products_named("fp8-delayed");
  products.delayed = DelayedScaling{.history = history, .algorithm = algorithm, .margin = 0};
  return products;
}

// Worked example: amax 2, 0, 7, inf, 4, 4, 4, 1e-44 with three entries. The scale that a step uses is that of the steps before
// it. The weights are quantised from fp32, which has 1e-44.
TEST(DelayedScaling, HasTheScalesOfTheWorkedExampleOverSteps) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double largest = static_cast<double>(std::numeric_limits<float>::max());
  const std::vector<double> amaxes = {2, 0, 7, infinity, 4, 4, 4, 1e-44};
  const std::vector<double> largest_of_three = {224, 224, 64, 64, 64, 64, 112, 112},
                            latest = {224, 224, 64, 64, 112, 112, 112, largest};
  for (const auto& [algorithm, expected] :
       {std::pair{AmaxChoice::max, largest_of_three}, {AmaxChoice::most_recent, latest}}) {
    const QuantizedProducts products = delayed_by(3, algorithm);
    const Policy policy = with_products(products);
    QuantizedLinear layer;
    const Tensor x = Tensor::zeros(*test_device(), {2, 4}, DType::bf16), dy = x;
    std::vector<double> used;
    for (const double amax : amaxes) {
      const Matrix w{4, 4, std::vector<double>(16, amax)};
      used.push_back(step_of(layer, policy, x, w.tensor(DType::f32), dy).log.at("w forward").scale);
    }
    const Matrix w{4, 4, std::vector<double>(16, 1.0)};
    used.push_back(step_of(layer, policy, x, w.tensor(DType::f32), dy).log.at("w forward").scale);
    EXPECT_EQ(used.front(), 1);
    EXPECT_EQ(std::vector<double>(used.begin() + 1, used.end()), expected);
  }
}

// (3) An evaluation uses the scale and does not change it; a pass that fails changes nothing either.
TEST(DelayedScaling, IsUpdatedByTrainingOnly) {
  const Policy& policy = policy_named("fp8-delayed");
  const Matrix x{4, 16, std::vector<double>(64, 2.0)}, large{4, 16, std::vector<double>(64, 1000.0)};
  const Tensor w = Matrix{16, 16, std::vector<double>(256, 1.0)}.tensor(DType::f32), dy = x.tensor(DType::bf16);
  QuantizedLinear layer;
  step_of(layer, policy, x.tensor(DType::bf16), w, dy);
  const auto evaluate = [&](bool training, int forwards, bool fails) {
    QuantizationLog log;
    try {
      Pass pass(*test_device(), policy, training);
      for (int i = 0; i < forwards; ++i) layer.forward(pass, "fc", large.tensor(DType::bf16), w, nullptr);
      if (fails) throw Error("planted");
    } catch (const Error&) {
    }
    return log.entries()[0];
  };
  const QuantizedOnce evaluated = evaluate(false, 1, false);
  EXPECT_EQ(evaluated.scale, 224);
  EXPECT_EQ(evaluated.saturated, 64);
  EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale, 224);
  for (const int forwards : {1, 2}) {
    evaluate(true, forwards, true);
    EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale, 224) << forwards;
    EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale, 224) << forwards;
  }
  evaluate(true, 1, false);  // the control: a training does
  EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale,
            static_cast<double>(448.0F / 1000));
}

// Both forwards of one pass, as with a layer that runs twice, count for one step: the larger of them (3).
TEST(DelayedScaling, TakesTheLargestOfTwoRunsInAStep) {
  const Policy& policy = policy_named("fp8-delayed");
  const Tensor w = Matrix{16, 16, std::vector<double>(256, 1.0)}.tensor(DType::f32);
  for (const auto& amaxes : {std::vector<double>{7, 2}, {2, 7}, {2, 7, 3}}) {
    QuantizedLinear layer;
    {
      Pass pass(*test_device(), policy, true);
      for (const double amax : amaxes)
        layer.forward(pass, "fc", Matrix{4, 16, std::vector<double>(64, amax)}.tensor(DType::bf16), w, nullptr);
    }
    QuantizationLog log;
    Pass pass(*test_device(), policy, true);
    layer.forward(pass, "fc", Matrix{4, 16, std::vector<double>(64, 2.0)}.tensor(DType::bf16), w, nullptr);
    EXPECT_EQ(log.entries()[0].scale, 64);
  }
}

struct Trained {
  std::vector<std::vector<unsigned char>> codes;  // of parameters, in the end
  std::vector<double> scales, saturated;          // of every quantisation
};

LayerSpec fc(const char* name, int64_t out) { return {"linear", name, {{"out", out}}}; }

Trained train(const LayerSpec& body, const Policy& policy, int steps, double input_scale = 1) {
  Subject subject = subject_of_network({16, 32}, DataKind::normal, 0, Network{{body, fc("last", 16)}});
  subject.name = "network", subject.sizes = "b16";
  TrialSpec spec = test_spec(kSmallMlp, "fp32");
  spec.subject = &subject, spec.policy = &policy;
  spec.settings.input_scale = input_scale;
  Trial trial(spec);
  Trained result;
  QuantizationLog log;
  for (int step = 0; step < steps; ++step) trial.train_step(step);
  for (const QuantizedOnce& one : log.entries())
    result.scales.push_back(one.scale), result.saturated.push_back(one.saturated);
  result.codes = codes_of(trial);
  return result;
}

// (3) A checkpoint computes the forward of its body again: with the scale of the first, and without a second update.
TEST(DelayedScaling, IsNotChangedByACheckpoint) {
  const LayerSpec plain = fc("fc", 24), checkpointed{"checkpoint", "again", {}, {{plain}}};
  for (const char* recipe : kRecipes) {
    const Trained once = train(plain, policy_named(recipe), 4), again = train(checkpointed, policy_named(recipe), 4);
    EXPECT_EQ(once.codes, again.codes) << recipe;
    if (recipe == std::string("fp8-delayed")) {
      EXPECT_EQ(once.scales, again.scales);
      EXPECT_EQ(std::set<double>(once.scales.begin(), once.scales.end()).count(1), 1u);
      EXPECT_GT(std::set<double>(once.scales.begin(), once.scales.end()).size(), 4u);
    }
  }
}

// (14) The first step has the scale 1, so that inputs above 448 are cut; the second does not.
TEST(DelayedScaling, CutsLargeNumbersInTheFirstStepOnly) {
  const Trained delayed = train(fc("fc", 24), policy_named("fp8-delayed"), 2, 1000),
                current = train(fc("fc", 24), policy_named("fp8-current"), 2, 1000);
  EXPECT_GT(delayed.saturated.front(), 16 * 32 / 2);
  EXPECT_EQ(delayed.saturated[delayed.saturated.size() / 2], 0);  // x of the first layer in the second step
  EXPECT_EQ(current.saturated.front(), 0);
}

}  // namespace
}  // namespace halfmark::models
