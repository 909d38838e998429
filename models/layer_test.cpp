#include "models/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

struct LayerFixture {
  Device& device = *test_device();
  const Policy& policy;
  Pass pass{device, policy, true};
  explicit LayerFixture(std::string_view name) : policy(policy_named(name)) {}
  Init init() const { return {device, policy, RandomKey(5)}; }
  Tensor tensor(const Shape& shape, uint64_t seed, DType dtype = DType::f64) const {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
    return Tensor::from(device, shape, dtype, values);
  }
};

// The definitions of torch.nn.LayerNorm, RMSNorm and GroupNorm with their epsilons, computed with NumPy in fp64. The small
// second row tells the epsilons apart; a reference that runs the same layers would not.
TEST(Layer, NormsOfRowsFollowTheirDefinitions) {
  const Policy& policy = policy_named("fp64");
  const Init init{*test_device(), policy, RandomKey(0)};
  Pass pass(*test_device(), policy, true);
  const auto expect = [&](const LayerPtr& layer, const Shape& shape, const std::vector<double>& x,
                          const std::vector<double>& y) {
    Saved saved;
    const std::vector<double> found =
        layer->forward(pass, Tensor::from(*test_device(), shape, DType::f64, x), &saved).values();
    ASSERT_EQ(found.size(), y.size());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(found[i], y[i], 1e-14) << layer->name() << " " << i;
  };
  const std::vector<double> rows = {1, 2, 4, 8, 1e-3, 2e-3, 0, -1e-3};
  expect(layer_norm(init, "layer", 4), {2, 4}, rows,
         {-1.025754575496193, -0.6527529116793956, 0.09325041595419938, 1.5852570712213894, 0.14907119849998596,
          0.4472135954999579, -0.14907119849998596, -0.4472135954999579});
  expect(rms_norm(init, "rms", 4), {2, 4}, rows,
         {0.21693045721018261, 0.43386091442036523, 0.8677218288407305, 1.735443657681461, 0.785866012525364,
          1.571732025050728, 0, -0.785866012525364});
  expect(group_norm(init, "group", 4, 2), {1, 4, 1, 2}, {1, 2, 4, 8, 0.5, -1, 3, 0.25},
         {-1.025754575496193, -0.6527529116793956, 0.09325041595419938, 1.5852570712213894, -0.12921884081176913,
          -1.162969567305922, 1.5936990366784858, -0.3015106285607946});
}

// Lengths {3, 1} of three samples: the third attends as the first does.
TEST(Layer, AttentionTakesTheLengthsInTurn) {
  LayerFixture fixture("fp64");
  for (const bool fused : {true, false}) {
    const LayerPtr layer = self_attention("attention", 2, {.fused = fused, .lengths = {3, 1}});
    std::vector<double> values;
    const std::vector<double> one = fixture.tensor({1, 4, 12}, 3).values();
    for (int sample = 0; sample < 3; ++sample) values.insert(values.end(), one.begin(), one.end());
    const std::vector<double> found =
        layer->forward(fixture.pass, Tensor::from(fixture.device, {3, 4, 12}, DType::f64, values), nullptr).values();
    const size_t size = found.size() / 3;
    const auto sample = [&](size_t i) {
      return std::vector<double>(found.begin() + static_cast<std::ptrdiff_t>(i * size),
                                 found.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
    };
    EXPECT_EQ(sample(2), sample(0)) << fused;
    EXPECT_NE(sample(1), sample(0)) << fused;
  }
}

// Of the operations of one layer: q, k and v are read where the projection has left them, and nothing else moves.
TEST(Layer, AttentionAsOneOperationMakesNoCopiesOfItsOperands) {
  LayerFixture fixture("fp32");
  const Tensor x = fixture.tensor({2, 6, 3 * 8}, 3, DType::f32), dy = fixture.tensor({2, 6, 8}, 4, DType::f32);
  struct Moved {
    std::multiset<std::string> operations;
    uint64_t bytes = 0;
  };
  const auto moved = [&](bool fused) {
    const LayerPtr layer = self_attention("attention", 2, {.causal = true, .fused = fused});
    Saved saved;
    const KernelLog log;
    layer->forward(fixture.pass, x, &saved);
    layer->backward(fixture.pass, dy, saved);
    Moved all;
    for (const LoggedKernel& one : log.entries()) {
      const uint64_t bytes = one.read + one.written;
      all.bytes += bytes;
      if (bytes > 0) all.operations.insert(one.operation);  // those that rows run themselves have no bytes
    }
    return all;
  };
  const Moved fused = moved(true), in_steps = moved(false);
  EXPECT_EQ(fused.operations, (std::multiset<std::string>{"packed_attention", "packed_attention_backward"}));
  constexpr uint64_t kValues = 4 * 2 * 6 * 8, kSums = 4 * 2 * 2 * 6;
  EXPECT_EQ(fused.bytes, (3 + 1) * kValues + kSums + (3 + 1 + 1 + 3) * kValues + kSums);
  EXPECT_TRUE(in_steps.operations.contains("permute"));
}

TEST(Layer, InitialisesWeightsAsTorchDoes) {
  LayerFixture fixture("fp64");
  const LayerPtr layer = linear(fixture.init(), "fc", 400, 50);
  double largest = 0, squares = 0;
  const std::vector<double> weights = layer->params()[0]->value.values();
  for (const double w : weights) largest = std::max(largest, std::fabs(w)), squares += w * w;
  EXPECT_LE(largest, 0.05);  // 1 / sqrt(400)
  EXPECT_GT(largest, 0.0499);
  EXPECT_NEAR(squares / static_cast<double>(weights.size()), 0.05 * 0.05 / 3,
              2e-5);  // the variance of a uniform number
  for (const double b : layer->params()[1]->value.values()) EXPECT_LE(std::fabs(b), 0.05);
}

TEST(Layer, InitialValuesDependOnTheNameNotOnTheOrder) {
  LayerFixture fixture("fp64");
  const LayerPtr a = linear(fixture.init(), "a", 4, 4), b = linear(fixture.init(), "b", 4, 4),
                 again = linear(fixture.init(), "a", 4, 4);
  EXPECT_NE(a->params()[0]->value.values(), b->params()[0]->value.values());
  EXPECT_EQ(a->params()[0]->value.values(), again->params()[0]->value.values());
}

TEST(Layer, RoundsInitialValuesFirstForTheReferenceOnRoundedInputs) {
  LayerFixture fixture("fp64");
  Init init = fixture.init();
  init.round_first = &kBf16;
  const LayerPtr exact = linear(fixture.init(), "fc", 8, 8), rounded = linear(init, "fc", 8, 8);
  std::vector<double> expected = exact->params()[0]->value.values();
  for (double& value : expected) value = round_to(kBf16, value);
  EXPECT_EQ(rounded->params()[0]->value.values(), expected);
}

TEST(Layer, AddsGradientsOfMicroBatchesOnRequest) {
  for (const char* policy : {"fp64", "amp-fp16"}) {
    LayerFixture fixture(policy);
    const DType dtype = fixture.policy.param;
    const LayerPtr layer = linear(fixture.init(), "fc", 6, 4);
    const Param& weight = *layer->params()[0];
    const Tensor x1 = fixture.tensor({3, 6}, 1, dtype), x2 = fixture.tensor({3, 6}, 2, dtype);
    const Tensor dy = fixture.tensor({3, 4}, 3, fixture.policy.low);
    bool accumulate = false;
    const auto gradient_after = [&](const Tensor& x) {
      Saved saved;
      Pass pass(fixture.device, fixture.policy, true);
      pass.accumulate = accumulate;
      layer->forward(pass, x, &saved);
      layer->backward(pass, dy, saved);
      return weight.grad.values();
    };
    const std::vector<double> first = gradient_after(x1), second = gradient_after(x2);
    accumulate = true;
    const std::vector<double> sum = gradient_after(x1);
    const double last_place = fixture.policy.param == DType::f64 ? 0x1p-50 : 0x1p-22;
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], first[i] + second[i], last_place * 10) << policy;
    accumulate = false;
    EXPECT_EQ(gradient_after(x2), second) << policy << ": without it, the gradient is overwritten";
  }
}

TEST(Layer, AWeightThatTwoLayersShareGetsTheSumOfBothGradients) {
  for (const char* policy : {"fp64", "amp-fp16"}) {
    LayerFixture fixture(policy);
    const DType dtype = fixture.policy.param;
    const LayerPtr first = linear(fixture.init(), "first", 4, 4, false);
    Param& weight = *first->params()[0];
    const LayerPtr second = tied_linear("second", weight);
    EXPECT_TRUE(second->params().empty()) << "the optimizer must see the weight once";
    const Tensor x = fixture.tensor({3, 4}, 1, dtype), dy = fixture.tensor({3, 4}, 2, fixture.policy.low);
    const auto gradient_of = [&](Layer& layer, Pass& pass) {
      Saved saved;
      layer.forward(pass, x, &saved);
      layer.backward(pass, dy, saved);
      return weight.grad.values();
    };
    Pass alone(fixture.device, fixture.policy, true), both(fixture.device, fixture.policy, true);
    const std::vector<double> one = gradient_of(*first, alone);
    gradient_of(*first, both);
    const std::vector<double> sum = gradient_of(*second, both);
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 2 * one[i]) << policy;
  }
}

TEST(Layer, MayRunForwardManyTimesBeforeBackward) {
  LayerFixture fixture("fp64");
  const LayerPtr layer = linear(fixture.init(), "fc", 5, 5);
  const Tensor x = fixture.tensor({2, 5}, 1), dy = fixture.tensor({2, 5}, 2);
  Saved saved;
  const Tensor once = layer->forward(fixture.pass, x, &saved), twice = layer->forward(fixture.pass, once, &saved);
  fixture.pass.accumulate = true;
  const Tensor back = layer->backward(fixture.pass, dy, saved);
  layer->backward(fixture.pass, back, saved);
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

TEST(Pass, CastsAWeightOnceAndFreesTheCastAtItsEnd) {
  LayerFixture fixture("amp-fp16");
  const LayerPtr layer = linear(fixture.init(), "fc", 4, 4);
  const Param& weight = *layer->params()[0];
  {
    Pass pass(fixture.device, fixture.policy, true);
    const Tensor first = pass.weight("linear", weight), second = pass.weight("linear", weight);
    EXPECT_EQ(first.dtype(), DType::f16);
    EXPECT_EQ(first.id(), second.id());
    EXPECT_EQ(first.purpose(), Purpose::casts);
    EXPECT_EQ(pass.weight("batch_norm", weight).id(), weight.value.id()) << "as it is";
  }
  const auto casts = static_cast<size_t>(Purpose::casts);
  EXPECT_EQ(fixture.device.memory().live().by_purpose[casts], 0u);
}

TEST(Pass, NeverCastsF64AndRefusesWhatTheRulesRefuse) {
  LayerFixture fixture("amp-fp16");
  const Tensor x = fixture.tensor({2, 2}, 1), single = fixture.tensor({2, 2}, 1, DType::f32);
  EXPECT_EQ(fixture.pass.input("linear", x).dtype(), DType::f64);
  EXPECT_EQ(fixture.pass.input("linear", single).dtype(), DType::f16);
  EXPECT_EQ(fixture.pass.input("layer_norm", fixture.pass.input("linear", single)).dtype(), DType::f32);
  EXPECT_THROW(fixture.pass.input("binary_cross_entropy", single), Unsupported);
  EXPECT_EQ(fixture.pass.output_dtype("log_softmax", DType::f16), DType::f32);
  EXPECT_EQ(fixture.pass.output_dtype("log_softmax", DType::f64), DType::f64);
  EXPECT_EQ(fixture.pass.output_dtype("relu", DType::f16), DType::f16);
}

TEST(Pass, MultipliesInTf32OnlyUnderTf32) {
  EXPECT_EQ(LayerFixture("tf32").pass.math(DType::f32).multiply, kTf32);
  EXPECT_EQ(LayerFixture("fp32").pass.math(DType::f32).multiply, kFp32);
  EXPECT_EQ(LayerFixture("amp-fp16").pass.math(DType::f32).multiply, kFp32);
  EXPECT_EQ(LayerFixture("amp-fp16").pass.math(DType::f16).accumulate, kFp32);
  EXPECT_EQ(LayerFixture("fp64").pass.math(DType::f64).accumulate, kFp64);
}

TEST(Saved, ThrowsWhenForwardAndBackwardDisagree) {
  Saved saved;
  EXPECT_THROW(saved.take(), Error);
  saved.keep_spec(LayerFixture("fp32").tensor({2}, 1));
  EXPECT_THROW(saved.take(), Error);
}

TEST(Residual, AddsBranchesOfDifferentDtypesAsTypePromotionDoes) {
  EXPECT_EQ(wider(DType::f16, DType::f32), DType::f32);
  EXPECT_EQ(wider(DType::f16, DType::f16), DType::f16);
  EXPECT_EQ(wider(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(wider(DType::f64, DType::bf16), DType::f64);
  // Under autocast the output of the linear body is f16 and the shortcut is f32: the sum and dx are f32.
  LayerFixture fixture("amp-fp16");
  const LayerPtr layer = residual("block", linear(fixture.init(), "fc", 4, 4));
  Saved saved;
  const Tensor x = fixture.tensor({2, 4}, 1, DType::f32), y = layer->forward(fixture.pass, x, &saved);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(layer->backward(fixture.pass, y, saved).dtype(), DType::f32);
  EXPECT_TRUE(saved.empty());
}

// 4 inputs of 5 x 6 each meet 6 / 2 outputs of their group through a kernel of 3 x 2.
TEST(Layer, CountsTheWorkOfATransposedConvolutionInGroups) {
  LayerFixture fixture("fp32");
  const LayerPtr layer = conv_transpose2d(fixture.init(), "up", 4, 6, {3, 2}, {}, 0, 2);
  EXPECT_EQ(layer->forward_flops({1, 4, 5, 6}), 2 * (4 * 5 * 6) * (3 * 3 * 2));
}

TEST(Layer, TakesAStepCountedFromEitherEnd) {
  LayerFixture fixture("fp64");
  const Tensor x = Tensor::from(fixture.device, {2, 3, 2}, DType::f64,
                                std::vector<double>{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121});
  const auto taken = [&](int64_t step) { return take_step("step", step)->forward(fixture.pass, x, nullptr).values(); };
  EXPECT_EQ(taken(0), (std::vector<double>{0, 1, 100, 101}));
  EXPECT_EQ(taken(2), (std::vector<double>{20, 21, 120, 121}));
  EXPECT_EQ(taken(-1), (std::vector<double>{20, 21, 120, 121}));
  EXPECT_EQ(taken(-2), (std::vector<double>{10, 11, 110, 111}));
  EXPECT_EQ(taken(-3), (std::vector<double>{0, 1, 100, 101}));
}

TEST(Residual, CountsTheWorkOfItsShortcut) {
  LayerFixture fixture("fp32");
  const LayerPtr plain = residual("block", linear(fixture.init(), "fc", 4, 4));
  const LayerPtr both = residual("block", linear(fixture.init(), "fc", 4, 4), linear(fixture.init(), "shortcut", 4, 4));
  EXPECT_EQ(plain->forward_flops({2, 4}), 2 * 2 * 4 * 4);
  EXPECT_EQ(both->forward_flops({2, 4}), 2 * 2 * 2 * 4 * 4);
}

// A row of -infinity alone: torch.nn.functional.softmax gives NaN, scaled_dot_product_attention 0.
TEST(SelfAttention, GivesNaNForARowWithoutAnyPositionUnlessGuarded) {
  const Policy& policy = policy_named("fp16");
  for (const bool guarded : {true, false})
    for (const double mask : {-1e9, -1e4}) {
      AttentionOptions options{.fused = false, .lengths = {2, 0}, .mask_value = mask};
      options.guarded = guarded;
      const LayerPtr layer = self_attention("attention", 1, options);
      Pass pass(*test_device(), policy, true);
      std::vector<double> values(2 * 2 * 6);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 5) / 4 - 0.5;
      const std::vector<double> y =
          layer->forward(pass, Tensor::from(*test_device(), {2, 2, 6}, DType::f16, values), nullptr).values();
      const bool is_nan = mask == -1e9 && !guarded;  // -1e9 is -infinity in fp16, -1e4 is not
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), is_nan && i >= y.size() / 2) << i;
    }
}

}  // namespace
}  // namespace halfmark::models
