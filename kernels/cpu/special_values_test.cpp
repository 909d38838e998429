// Infinities, NaN and noise that the rows of the CPU must not lose.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/losses.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels {
namespace {

const double kQuietNaN = std::numeric_limits<double>::quiet_NaN();

TEST(SpecialValues, MaskedSoftmaxKeepsANaNAmongScoresThatAreLeftOut) {
  const auto device = open_device("cpu");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Tensor x = Tensor::from(
        *device, {2, 3}, dtype, std::vector<double>{-HUGE_VAL, kQuietNaN, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL});
    Tensor out(*device, {2, 3}, dtype);
    run(Softmax{.x = x, .out = out, .masked = true});
    EXPECT_TRUE(std::isnan(out.values()[1])) << name_of(dtype);
    EXPECT_EQ(out.values()[3], 0) << "a row without any score";
  }
}

// std::max_element finds no NaN behind -infinity.
TEST(SpecialValues, EveryRowOfMaskedSoftmaxAndAttentionKeepsANaNBehindMinusInfinity) {
  const auto device = open_device("cpu");
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto make = [&](const Shape& shape, const std::vector<double>& values) {
      return Tensor::from(*device, shape, dtype, values);
    };
    const Tensor x = make({1, 2}, {-HUGE_VAL, kQuietNaN});
    Tensor out(*device, {1, 2}, dtype);
    const Softmax softmax{.x = x, .out = out, .masked = true};
    for (const auto& row : device->kernels().of<Softmax>()) {
      if (row.refuses(*device, softmax)) continue;
      row.run(*device, softmax);
      for (const double value : out.values()) EXPECT_TRUE(std::isnan(value)) << row.name << " " << name_of(dtype);
    }
    const Tensor q = make({1, 1, 1, 1}, {1}), k = make({1, 1, 2, 1}, {1, kQuietNaN}), v = make({1, 1, 2, 1}, {1, 1}),
                 mask = make({1, 1, 2}, {-HUGE_VAL, 0});
    Tensor result(*device, {1, 1, 1, 1}, dtype), log_sum(*device, {1, 1, 1}, dtype);
    const Attention attention{.q = q, .k = k, .v = v, .mask = mask, .out = result, .log_sum = log_sum};
    for (const auto& row : device->kernels().of<Attention>()) {
      if (row.refuses(*device, attention)) continue;
      row.run(*device, attention);
      EXPECT_TRUE(std::isnan(result.values()[0])) << row.name << " " << name_of(dtype);
      EXPECT_TRUE(std::isnan(log_sum.values()[0])) << row.name << " " << name_of(dtype);
    }
  }
}

TEST(SpecialValues, MaxPoolOfMinusInfinityAloneIsMinusInfinity) {
  const auto device = open_device("cpu");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Layout layout : {Layout::plain, Layout::nhwc}) {
      const Tensor x = Tensor::from(*device, {1, 16, 2, 2}, dtype, std::vector<double>(64, -HUGE_VAL), layout);
      Tensor out(*device, {1, 16, 1, 1}, dtype), indices;
      run(MaxPool2d{.x = x, .out = out, .indices = indices, .window = {.stride_h = 2, .stride_w = 2}});
      for (const double value : out.values()) EXPECT_EQ(value, -HUGE_VAL) << name_of(dtype);
    }
}

// A NaN in a query, a key or a value reaches the rows in fp32 that it reaches in fp64, forward and backward.
TEST(SpecialValues, AttentionSpreadsANaNAsInFp64) {
  const auto device = open_device("cpu");
  constexpr int64_t kLength = 9, kWidth = 4, kBad = 7;
  const Shape shape{1, 1, kLength, kWidth};
  const auto nans = [&](DType dtype, int where) {
    const auto make = [&](bool has_nan) {
      std::vector<double> values(static_cast<size_t>(kLength * kWidth), 0.5);
      if (has_nan) values[kBad * kWidth] = kQuietNaN;
      return Tensor::from(*device, shape, dtype, values);
    };
    const Tensor q = make(where == 0), k = make(where == 1), v = make(where == 2), dout = make(false), none;
    Tensor out(*device, shape, dtype), log_sum(*device, {1, 1, kLength}, dtype), dq(*device, shape, dtype),
        dk(*device, shape, dtype), dv(*device, shape, dtype);
    run(Attention{.q = q, .k = k, .v = v, .mask = none, .out = out, .log_sum = log_sum, .causal = true});
    run(AttentionBackward{.q = q,
                          .k = k,
                          .v = v,
                          .mask = none,
                          .out = out,
                          .log_sum = log_sum,
                          .dout = dout,
                          .dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .causal = true});
    std::vector<bool> found;
    for (const Tensor* one : {&out, &dq, &dk, &dv})
      for (const double value : one->values()) found.push_back(std::isnan(value));
    return found;
  };
  for (int where = 0; where < 3; ++where) EXPECT_EQ(nans(DType::f32, where), nans(DType::f64, where)) << where;
}

TEST(SpecialValues, AnInfiniteElementOfWeightZeroAddsNothingToALoss) {
  const auto device = open_device("cpu");
  const auto tensor = [&](const std::vector<double>& values) { return Tensor::from(*device, {3}, DType::f32, values); };
  const Tensor x = tensor({HUGE_VAL, 1, kQuietNaN}), y = tensor({0, 0, 0}), w = tensor({0, 1, 0});
  Tensor loss(*device, {1}, DType::f32);
  run(ElementLoss<losses::Mse>{.output = x, .target = y, .loss = loss, .a = 0, .b = 0, .weights = &w});
  EXPECT_EQ(loss.values()[0], 1);
}

// Equal parameters with equal gradients: what differs is the noise, also between the parts that threads take.
TEST(SpecialValues, StochasticRoundingOfALargeTensorDoesNotRepeatItsNoise) {
  const auto device = open_device("cpu");
  constexpr int64_t kPart = 32768, kCount = 3 * kPart;
  Tensor parameter = Tensor::zeros(*device, {kCount}, DType::bf16),
         gradient = Tensor::zeros(*device, {kCount}, DType::bf16);
  parameter.fill(1), gradient.fill(1);
  std::vector<UpdatedTensors> all{
      {.parameter = parameter, .gradient = gradient, .first = {}, .second = {}, .compensation = {}, .low = {}}};
  run(SgdStep{.tensors = all, .rate = 0x1p-10, .noise = 7, .storage = Storage::stochastic});
  const std::vector<double> values = parameter.values();
  EXPECT_NE(std::vector<double>(values.begin(), values.begin() + kPart),
            std::vector<double>(values.begin() + kPart, values.begin() + 2 * kPart));
}

}  // namespace
}  // namespace halfmark::kernels
