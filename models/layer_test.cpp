#include "models/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

struct Bench {
  Device& device = *test_device();
  const Policy& policy;
  Pass pass{device, policy, true};
  explicit Bench(std::string_view name) : policy(policy_named(name)) {}
  Init init() const { return {device, policy, RandomKey(5)}; }
  Tensor tensor(const Shape& shape, uint64_t seed, DType dtype = DType::f64) const {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
    return Tensor::from(device, shape, dtype, values);
  }
};

TEST(Layer, DrawsWeightsAsTorchDoes) {
  Bench bench("fp64");
  const LayerPtr layer = linear(bench.init(), "fc", 400, 50);
  double largest = 0, squares = 0;
  const std::vector<double> weights = layer->params()[0]->value.values();
  for (const double w : weights) largest = std::max(largest, std::fabs(w)), squares += w * w;
  EXPECT_LE(largest, 0.05);  // 1 / sqrt(400)
  EXPECT_GT(largest, 0.0499);
  EXPECT_NEAR(squares / static_cast<double>(weights.size()), 0.05 * 0.05 / 3,
              2e-5);  // the variance of a uniform number
  for (const double b : layer->params()[1]->value.values()) EXPECT_LE(std::fabs(b), 0.05);
}

TEST(Layer, DrawsByNameNotByOrder) {
  Bench bench("fp64");
  const LayerPtr a = linear(bench.init(), "a", 4, 4), b = linear(bench.init(), "b", 4, 4),
                 again = linear(bench.init(), "a", 4, 4);
  EXPECT_NE(a->params()[0]->value.values(), b->params()[0]->value.values());
  EXPECT_EQ(a->params()[0]->value.values(), again->params()[0]->value.values());
}

TEST(Layer, RoundsInitialValuesFirstForTheOracleOnRoundedInputs) {
  Bench bench("fp64");
  Init init = bench.init();
  init.round_first = &kBf16;
  const LayerPtr exact = linear(bench.init(), "fc", 8, 8), rounded = linear(init, "fc", 8, 8);
  std::vector<double> expected = exact->params()[0]->value.values();
  for (double& value : expected) value = round_to(kBf16, value);
  EXPECT_EQ(rounded->params()[0]->value.values(), expected);
}

TEST(Layer, AddsGradientsOfMicroBatchesOnRequest) {
  for (const char* policy : {"fp64", "amp-fp16"}) {
    Bench bench(policy);
    const DType dtype = bench.policy.param;
    const LayerPtr layer = linear(bench.init(), "fc", 6, 4);
    const Param& weight = *layer->params()[0];
    const Tensor x1 = bench.tensor({3, 6}, 1, dtype), x2 = bench.tensor({3, 6}, 2, dtype);
    const Tensor dy = bench.tensor({3, 4}, 3, bench.policy.low);
    const auto gradient_after = [&](const Tensor& x) {
      Saved saved;
      layer->forward(bench.pass, x, &saved);
      layer->backward(bench.pass, dy, saved);
      return weight.grad.values();
    };
    const std::vector<double> first = gradient_after(x1), second = gradient_after(x2);
    bench.pass.accumulate = true;
    const std::vector<double> sum = gradient_after(x1);
    const double last_place = bench.policy.param == DType::f64 ? 0x1p-50 : 0x1p-22;
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], first[i] + second[i], last_place * 10) << policy;
    bench.pass.accumulate = false;
    EXPECT_EQ(gradient_after(x2), second) << policy << ": without it, the gradient is overwritten";
  }
}

TEST(Layer, MayRunManyTimesBeforeItRunsBack) {
  Bench bench("fp64");
  const LayerPtr layer = linear(bench.init(), "fc", 5, 5);
  const Tensor x = bench.tensor({2, 5}, 1), dy = bench.tensor({2, 5}, 2);
  Saved saved;
  const Tensor once = layer->forward(bench.pass, x, &saved), twice = layer->forward(bench.pass, once, &saved);
  bench.pass.accumulate = true;
  const Tensor back = layer->backward(bench.pass, dy, saved);
  layer->backward(bench.pass, back, saved);
  EXPECT_TRUE(saved.empty());
  // d/dw of w(w x): dy x1^T + (w^T dy) x^T, here in the layout [batch, features].
  const std::vector<double> g = layer->params()[0]->grad.values(), d1 = dy.values(), d0 = back.values(),
                            h = once.values(), in = x.values();
  for (size_t o = 0; o < 5; ++o)
    for (size_t i = 0; i < 5; ++i) {
      double expected = 0;
      for (size_t n = 0; n < 2; ++n) expected += d1[n * 5 + o] * h[n * 5 + i] + d0[n * 5 + o] * in[n * 5 + i];
      EXPECT_NEAR(g[o * 5 + i], expected, 1e-12);
    }
}

TEST(Pass, CastsAWeightOnceAndForgetsItAtItsEnd) {
  Bench bench("amp-fp16");
  const LayerPtr layer = linear(bench.init(), "fc", 4, 4);
  const Param& weight = *layer->params()[0];
  {
    Pass pass(bench.device, bench.policy, true);
    const Tensor first = pass.weight("linear", weight), second = pass.weight("linear", weight);
    EXPECT_EQ(first.dtype(), DType::f16);
    EXPECT_EQ(first.id(), second.id());
    EXPECT_EQ(first.purpose(), Purpose::casts);
    EXPECT_EQ(pass.weight("batch_norm", weight).id(), weight.value.id()) << "as it is";
  }
  const auto casts = static_cast<size_t>(Purpose::casts);
  EXPECT_EQ(bench.device.memory().live().by_purpose[casts], 0u);
}

TEST(Pass, LeavesF64AloneAndRefusesWhatTheRulesRefuse) {
  Bench bench("amp-fp16");
  const Tensor x = bench.tensor({2, 2}, 1), single = bench.tensor({2, 2}, 1, DType::f32);
  EXPECT_EQ(bench.pass.input("linear", x).dtype(), DType::f64);
  EXPECT_EQ(bench.pass.input("linear", single).dtype(), DType::f16);
  EXPECT_EQ(bench.pass.input("layer_norm", bench.pass.input("linear", single)).dtype(), DType::f32);
  EXPECT_THROW(bench.pass.input("binary_cross_entropy", single), Unsupported);
  EXPECT_EQ(bench.pass.output_dtype("log_softmax", DType::f16), DType::f32);
  EXPECT_EQ(bench.pass.output_dtype("log_softmax", DType::f64), DType::f64);
  EXPECT_EQ(bench.pass.output_dtype("relu", DType::f16), DType::f16);
}

TEST(Pass, MultipliesInTf32OnlyUnderTf32) {
  EXPECT_EQ(Bench("tf32").pass.math(DType::f32).multiply, kTf32);
  EXPECT_EQ(Bench("fp32").pass.math(DType::f32).multiply, kFp32);
  EXPECT_EQ(Bench("amp-fp16").pass.math(DType::f32).multiply, kFp32);
  EXPECT_EQ(Bench("amp-fp16").pass.math(DType::f16).accumulate, kFp32);
  EXPECT_EQ(Bench("fp64").pass.math(DType::f64).accumulate, kFp64);
}

TEST(Saved, TellsThatForwardAndBackwardDisagree) {
  Saved saved;
  EXPECT_THROW(saved.take(), Error);
  saved.keep_form(Bench("fp32").tensor({2}, 1));
  EXPECT_THROW(saved.take(), Error);
}

TEST(Residual, AddsTheDtypesOfItsBranchesAsPromotionDoes) {
  EXPECT_EQ(wider(DType::f16, DType::f32), DType::f32);
  EXPECT_EQ(wider(DType::f16, DType::f16), DType::f16);
  EXPECT_EQ(wider(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(wider(DType::f64, DType::bf16), DType::f64);
  // A body of one linear layer under autocast is half, the f32 input beside it is not: the sum is f32, dx comes back in
  // f32.
  Bench bench("amp-fp16");
  const LayerPtr layer = residual("block", linear(bench.init(), "fc", 4, 4));
  Saved saved;
  const Tensor x = bench.tensor({2, 4}, 1, DType::f32), y = layer->forward(bench.pass, x, &saved);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(layer->backward(bench.pass, y, saved).dtype(), DType::f32);
  EXPECT_TRUE(saved.empty());
}

}  // namespace
}  // namespace halfmark::models
