// Rules of PyTorch that layers, optimizer and scaler must follow exactly. Values with more than two digits were printed
// by PyTorch 2.15.0 on a CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "models/layers/loss.h"
#include "models/optimizer.h"
#include "models/scaler.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct LossAndGradient {
  double loss;
  std::vector<double> dlogits;
};

// Cross-entropy of two rows of three logits, labels 0 and 1.
LossAndGradient loss_and_gradient(const char* policy_name, const std::vector<double>& logits) {
  Device& device = *test_device();
  const Policy& policy = policy_named(policy_name);
  Pass pass(device, policy, true);
  const std::unique_ptr<Loss> head = make_loss({});
  const Tensor x = Tensor::from(device, {2, 3}, policy.low, logits);
  const Tensor labels = Tensor::from(device, {2}, DType::i32, std::vector<double>{0, 1});
  const Tensor loss = head->forward(pass, x, labels);
  return {loss.values()[0], head->backward(pass, 1).values()};
}

TEST(PyTorch, ALabelsGradientSurvivesALogitGapOfTenInEveryDtype) {
  // The gradient at the label of the second row is exp(-10) + exp(-11.5) = 5.55e-5, over 2 rows. A probability stored in
  // fp16 is 1 from a gap of 9 on, in bf16 from 7 on. The logits are exact in both.
  const std::vector<double> logits = {10, 0, 0, 0.5, 10.5, -1};
  const double sums[] = {1 + 2 * std::exp(-10.0), 1 + std::exp(-10.0) + std::exp(-11.5)};
  std::vector<double> expected;
  for (size_t row = 0; row < 2; ++row)
    for (size_t c = 0; c < 3; ++c) {
      const double top = row == 0 ? 10 : 10.5, away = std::exp(logits[3 * row + c] - top) / sums[row];
      expected.push_back((c == row ? 1 / sums[row] - 1 : away) / 2);
    }
  EXPECT_NEAR(expected[0], -4.5396e-5, 1e-9);
  for (const char* policy : {"fp16", "fp16-bn32", "bf16", "amp-fp16", "amp-bf16", "fp32", "tf32", "fp64"}) {
    const LossAndGradient found = loss_and_gradient(policy, logits);
    const double u = format_of(policy_named(policy).low).unit_roundoff();
    for (size_t i = 0; i < expected.size(); ++i) {
      // The logarithm and the gradient are each rounded once to the low type, which turns the gradient by u times
      // 1 + |log p| <= 13. The difference from 1 is formed in fp32, from an exp that is accurate to 4 units.
      const double bound = 14 * u * std::fabs(expected[i]) + 4 * kFp32.unit_roundoff() + 0x1p-25;
      EXPECT_NEAR(found.dlogits[i], expected[i], bound) << policy << " " << i;
    }
    EXPECT_LT(found.dlogits[0], 0) << policy;
    EXPECT_LT(found.dlogits[4], 0) << policy;
    const double loss = (std::log(sums[0]) + std::log(sums[1])) / 2;
    EXPECT_NEAR(found.loss, loss, u * loss + 0x1p-25 + 4 * kFp32.unit_roundoff()) << policy;
  }
}

TEST(PyTorch, CrossEntropyInFp32HasPyTorchsGradient) {
  const LossAndGradient found = loss_and_gradient("fp32", {2, 0, 0, 0.5, 2.5, -1});
  const double torch[] = {-0.106507003, 0.053253483, 0.053253483, 0.0580572672, -0.0710116029, 0.0129543273};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found.dlogits[i], torch[i], 8 * kFp32.unit_roundoff()) << i;
  EXPECT_NEAR(found.loss, 0.19636154174804688, 8 * kFp32.unit_roundoff());
}

TEST(PyTorch, ReluPassesTheGradientWhereItsInputIsNaN) {
  Device& device = *test_device();
  for (const char* name : {"fp32", "fp16", "bf16", "fp64"}) {
    const Policy& policy = policy_named(name);
    Pass pass(device, policy, true);
    const LayerPtr layer = relu("relu");
    const Tensor x = Tensor::from(device, {1, 4}, policy.low, std::vector<double>{kNotANumber, 0, -1, 2});
    Saved saved;
    const Tensor y = layer->forward(pass, x, &saved);
    const Tensor dy = Tensor::from(device, {1, 4}, policy.low, std::vector<double>(4, 5));
    EXPECT_EQ(layer->backward(pass, dy, saved).values(), (std::vector<double>{5, 0, 0, 5})) << name;
  }
}

TEST(PyTorch, TheLastNaNOfAWindowTakesTheGradientOfMaxPooling) {
  Device& device = *test_device();
  const std::vector<double> images = {kNotANumber, kNotANumber, 1, kNotANumber, 1, kNotANumber, kNotANumber, 2};
  for (const char* name : {"fp32", "fp16", "bf16", "fp64"}) {
    const Policy& policy = policy_named(name);
    Pass pass(device, policy, true);
    const LayerPtr layer = max_pool2d("pool", 2, {.stride_h = 2, .stride_w = 2});
    const Tensor x = Tensor::from(device, {2, 1, 2, 2}, policy.low, images);
    Saved saved;
    const Tensor y = layer->forward(pass, x, &saved);
    for (const double value : y.values()) EXPECT_TRUE(std::isnan(value)) << name;
    const Tensor dy = Tensor::from(device, {2, 1, 1, 1}, policy.low, std::vector<double>(2, 1));
    EXPECT_EQ(layer->backward(pass, dy, saved).values(), (std::vector<double>{0, 0, 0, 1, 0, 0, 1, 0})) << name;
  }
}

TEST(PyTorch, AWeightDecayOfZeroLeavesAnInfiniteParameterInfinite) {
  Device& device = *test_device();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    Param param{"p", Tensor::from(device, {2}, dtype, std::vector<double>{HUGE_VAL, 1}), {}, {}};
    param.grad = Tensor::from(device, {2}, dtype, std::vector<double>{1, 1});
    Optimizer({}, 0.5).step({&param});
    EXPECT_EQ(param.value.values(), (std::vector<double>{HUGE_VAL, 0.5})) << name_of(dtype);
  }
}

TEST(PyTorch, TheScaleIsMultipliedInFp64AndRoundedOnce) {
  // Source: aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale_cuda_kernel: the factors are doubles. With factors
  // that fp32 does not hold exactly, rounding them first gives 3.3000002 and 0.90000004.
  ScalerSpec spec{.kind = ScalerSpec::Kind::dynamic, .initial = 3, .growth = 1.1, .backoff = 0.3, .interval = 1};
  Scaler grown(spec), shrunk(spec);
  grown.update(false), shrunk.update(true);
  EXPECT_EQ(grown.scale(), 3.299999952316284f);
  EXPECT_EQ(shrunk.scale(), 0.8999999761581421f);
}

}  // namespace
}  // namespace halfmark::models
