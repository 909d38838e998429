// The formulas at the edge cases where implementations differ, and every activation against its points and derivative.
#include "kernels/ops/formulas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "kernels/number/dtype.h"
#include "kernels/ops/activations.h"

namespace halfmark::kernels::formulas {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Formulas, ReluPassesNaNsAndMakesNegativeZeroPositive) {
  EXPECT_EQ(relu(3.0f), 3.0f);
  EXPECT_EQ(relu(-3.0f), 0.0f);
  EXPECT_EQ(relu(-kInf), 0.0f);
  EXPECT_FALSE(std::signbit(relu(-0.0f)));
  EXPECT_TRUE(std::isnan(relu(kNan)));
}

TEST(Formulas, ReluBackwardLetsTheGradientThroughWhereTheOutputIsPositiveOrNaN) {
  EXPECT_EQ(relu_backward(1.0f, 5.0f), 5.0f);
  EXPECT_EQ(relu_backward(kInf, 5.0f), 5.0f);
  EXPECT_EQ(relu_backward(0.0f, 5.0f), 0.0f);
  EXPECT_EQ(relu_backward(-kInf, 5.0f), 0.0f);
  EXPECT_EQ(relu_backward(0.0f, kNan), 0.0f);
  EXPECT_EQ(relu_backward(kNan, 5.0f), 5.0f);
  EXPECT_EQ(relu_backward(-kNan, 5.0f), 5.0f);
}

TEST(Formulas, TheFirstOfEqualsAndTheLastNaNWinAWindow) {
  EXPECT_TRUE(pool_takes(2.0f, 1.0f));
  EXPECT_FALSE(pool_takes(1.0f, 1.0f));
  EXPECT_TRUE(pool_takes(kNan, kInf));
  EXPECT_FALSE(pool_takes(kInf, kNan));
  EXPECT_TRUE(pool_takes(kNan, kNan));
}

TEST(Formulas, ReluOnCodesIsReluOnValues) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (int code = -32768; code < 32768; ++code) {
      const auto infinity = static_cast<int16_t>(encode(dtype, kInf));
      const auto bits = [](int16_t c) { return uint64_t{static_cast<uint16_t>(c)}; };
      const auto x = static_cast<int16_t>(code);
      const double value = decode(dtype, bits(x)), y = decode(dtype, bits(relu_code(x, infinity)));
      const auto dy = static_cast<int16_t>(encode(dtype, -1.5));
      ASSERT_TRUE(std::isnan(value) ? std::isnan(y) : y == relu(value) && !std::signbit(y)) << name_of(dtype) << code;
      ASSERT_EQ(decode(dtype, bits(relu_backward_code(x, dy, infinity))), relu_backward(value, -1.5)) << code;
    }
}

TEST(Formulas, AnOverflowIsSeenInTheScaledGradient) {
  EXPECT_FALSE(overflowed(std::numeric_limits<float>::max()));
  EXPECT_TRUE(overflowed(-kInf));
  EXPECT_TRUE(overflowed(kNan));
  EXPECT_EQ(unscale(8.0f, 0.125f), 1.0f);
  EXPECT_EQ(unscale(-kInf, 0.125f), -kInf);
  EXPECT_TRUE(std::isnan(unscale(kNan, 0.0f)));
}

TEST(Formulas, BatchNormAgreesWithItsDefinition) {
  const double inverse = batch_norm_inverse(4.0, 0.0);
  EXPECT_DOUBLE_EQ(inverse, 0.5);
  EXPECT_DOUBLE_EQ(batch_norm(7.0, 3.0, inverse, 10.0, 1.0), 21.0);
  EXPECT_DOUBLE_EQ(moving_average(1.0, 3.0, 0.25), 1.5);
}

TEST(Formulas, TheOrdersOfBatchNormAgreeUpToRounding) {
  const double x = 0.7, dy = -1.3, mean = 0.2, inverse = 0.9, scale = 1.7, shift = -0.4, dscale = 2.5, dshift = 0.3;
  const double y = batch_norm(x, mean, inverse, scale, shift);
  EXPECT_DOUBLE_EQ(batch_norm_in_order(x, mean, inverse, scale, shift), y);
  EXPECT_DOUBLE_EQ(batch_norm_folded(x, mean, scale * inverse, shift), y);
  const double dx = batch_norm_backward(x, dy, mean, inverse, scale, dscale, dshift, 4.0);
  EXPECT_DOUBLE_EQ(batch_norm_backward_in_order(x, dy, mean, inverse, scale, dscale, dshift, 4.0), dx);
  EXPECT_DOUBLE_EQ(batch_norm_backward_folded(x, dy, mean, scale * inverse, dshift / 4, inverse * dscale / 4), dx);
}

TEST(Formulas, BatchNormBackwardIsTheDerivativeOfForward) {
  // Loss = sum of w y over four values of one channel, against central differences in fp64.
  const double x[4] = {0.3, -1.2, 2.5, 0.9}, w[4] = {1.0, -0.5, 0.25, 2.0}, epsilon = 1e-5, scale = 1.7;
  const auto statistics = [&](const double* v, double& mean, double& inverse) {
    mean = (v[0] + v[1] + v[2] + v[3]) / 4;
    double squares = 0;
    for (int i = 0; i < 4; ++i) squares += (v[i] - mean) * (v[i] - mean);
    inverse = batch_norm_inverse(squares / 4, epsilon);
  };
  const auto loss = [&](const double* v) {
    double mean, inverse, sum = 0;
    statistics(v, mean, inverse);
    for (int i = 0; i < 4; ++i) sum += w[i] * batch_norm(v[i], mean, inverse, scale, 0.0);
    return sum;
  };
  double mean, inverse, dscale = 0, dshift = 0;
  statistics(x, mean, inverse);
  for (int i = 0; i < 4; ++i) dscale += w[i] * (x[i] - mean) * inverse, dshift += w[i];
  for (int i = 0; i < 4; ++i) {
    double up[4], down[4];
    for (int j = 0; j < 4; ++j) up[j] = x[j] + (i == j ? 1e-5 : 0), down[j] = x[j] - (i == j ? 1e-5 : 0);
    const double gradient = batch_norm_backward(x[i], w[i], mean, inverse, scale, dscale, dshift, 4.0);
    EXPECT_NEAR(gradient, (loss(up) - loss(down)) / 2e-5, 1e-8);
  }
}

TEST(Formulas, SoftmaxBackwardSumsToNothingOverARow) {
  const double p[3] = {0.2, 0.3, 0.5};
  double sum = 0;
  for (int i = 0; i < 3; ++i) sum += softmax_backward(std::log(p[i]), i == 1, 0.25);
  EXPECT_NEAR(sum, 0, 1e-16);
  EXPECT_DOUBLE_EQ(softmax_backward(std::log(p[1]), true, 0.25), -0.175);
}

template <class Row>
double backward_at(double x, double dy) {
  return Row::backward(Row::kept == activations::Kept::input ? x : Row::forward(x), dy);
}

TEST(Activations, EachGoesThroughItsPointsInBothArithmetics) {
  activations::All::each([]<class Row>() {
    EXPECT_GE(std::size(Row::points), 4u) << Row::name;
    for (const activations::Point& point : Row::points) {
      const double tolerance = Row::forward_steps * std::fabs(point.y);
      EXPECT_NEAR(Row::forward(point.x), point.y, tolerance * 0x1p-52) << Row::name << " of " << point.x;
      EXPECT_NEAR(Row::forward(static_cast<float>(point.x)), point.y, (tolerance + std::fabs(point.y)) * 0x1p-23)
          << Row::name << " of " << point.x;
    }
  });
}

// The steps of the table, against the same formula in fp64. Intermediate results may underflow: x times the smallest.
TEST(Activations, EachErrorInFp32IsWithinItsStepsForEveryKindOfFloat) {
  activations::All::each([]<class Row>() {
    constexpr double kRounding = 0x1p-24, kSmallest = 0x1p-149, kLargest = 0x1.fffffp+127;
    for (uint64_t code = 0; code < 0x100000000; code += 9973) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(code));
      const bool is_output = Row::kept == activations::Kept::output && Row::name != "relu";
      const double lost = kSmallest * (1 + std::fabs(static_cast<double>(x)));
      if (!std::isfinite(x)) continue;
      const double y = Row::forward(static_cast<double>(x)), found = Row::forward(x);
      if (std::isfinite(y) && std::fabs(y) < kLargest) {
        ASSERT_LE(std::fabs(found - y), (2 * Row::forward_steps + 0.5) * kRounding * std::fabs(y) + lost)
            << Row::name << " of " << x;
      }
      if (is_output && std::fabs(x) > 1) continue;  // no output
      const double dx = Row::backward(static_cast<double>(x), 1.0);
      if (std::fabs(dx) >= kLargest) continue;  // beyond fp32
      ASSERT_LE(std::fabs(Row::backward(x, 1.0F) - dx),
                (2 * Row::backward_steps + 0.5) * kRounding * std::max(1.0, std::fabs(dx)) + lost)
          << Row::name << " at " << x;
    }
  });
}

TEST(Activations, EachBackwardIsTheDerivativeOfItsForward) {
  activations::All::each([]<class Row>() {
    for (double x = -7.96875; x < 8; x += 0.0625) {  // never at 0, where relu has a kink
      const double h = 0x1p-17, slope = (Row::forward(x + h) - Row::forward(x - h)) / (2 * h);
      const double tolerance = 1e-8 * std::max(1.0, std::fabs(slope));
      ASSERT_NEAR(backward_at<Row>(x, 1.0), slope, tolerance) << Row::name << " at " << x;
      ASSERT_NEAR(backward_at<Row>(x, -3.0), -3 * slope, 3 * tolerance) << Row::name << " at " << x;
    }
  });
}

TEST(Activations, NoneHidesANaNAndPaddingStaysZeroBackward) {
  activations::All::each([]<class Row>() {
    EXPECT_TRUE(std::isnan(Row::forward(kNan)) && std::isnan(Row::forward(static_cast<double>(kNan)))) << Row::name;
    EXPECT_EQ(Row::backward(0.0, 0.0), 0) << Row::name;  // a library's layout is padded with zeros
  });
}

TEST(Activations, NoTwoShareAName) {
  std::set<std::string_view> names;
  activations::All::each([&]<class Row>() {
    EXPECT_TRUE(names.insert(Row::name).second && names.insert(Row::backward_name).second) << Row::name;
    EXPECT_EQ(std::string(Row::name) + "_backward", Row::backward_name);
  });
}

}  // namespace
}  // namespace halfmark::kernels::formulas
