// The formulas that CPU and GPU share, at the edges where implementations differ.
#include "kernels/ops/formulas.h"

#include <gtest/gtest.h>

#include <limits>

namespace halfmark::formulas {
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

TEST(Formulas, ReluBackwardLetsTheGradientThroughOnlyWhereTheOutputIsPositive) {
  EXPECT_EQ(relu_backward(1.0f, 5.0f), 5.0f);
  EXPECT_EQ(relu_backward(0.0f, 5.0f), 0.0f);
  EXPECT_EQ(relu_backward(0.0f, kNan), 0.0f);
}

TEST(Formulas, TheFirstOfEqualsAndTheFirstNaNWinAWindow) {
  EXPECT_TRUE(pool_takes(2.0f, 1.0f));
  EXPECT_FALSE(pool_takes(1.0f, 1.0f));
  EXPECT_TRUE(pool_takes(kNan, kInf));
  EXPECT_FALSE(pool_takes(kInf, kNan));
  EXPECT_FALSE(pool_takes(kNan, kNan));
}

TEST(Formulas, UnscaleTestsTheScaledGradient) {
  bool found = false;
  EXPECT_EQ(unscale(8.0f, 0.125f, found), 1.0f);
  EXPECT_FALSE(found);
  EXPECT_EQ(unscale(-kInf, 0.125f, found), -kInf);
  EXPECT_TRUE(found);
  found = false;
  EXPECT_TRUE(std::isnan(unscale(kNan, 0.0f, found)));
  EXPECT_TRUE(found);
}

TEST(Formulas, SgdIsTheTextbookStep) {
  const auto step = sgd_step(1.0, 0.5, 2.0, 0.1, 0.9, 0.01);
  EXPECT_DOUBLE_EQ(step.velocity, 0.9 * 2.0 + 0.5 + 0.01 * 1.0);
  EXPECT_DOUBLE_EQ(step.parameter, 1.0 - 0.1 * step.velocity);
}

TEST(Formulas, SgdWithoutMomentumIgnoresAnInfiniteVelocity) {
  EXPECT_EQ(sgd_step(1.0f, 0.5f, kInf, 1.0f, 0.0f, 0.0f).parameter, 0.5f);
}

TEST(Formulas, BatchNormAgreesWithItsDefinition) {
  const double inverse = batch_norm_inverse(4.0, 0.0);
  EXPECT_DOUBLE_EQ(inverse, 0.5);
  EXPECT_DOUBLE_EQ(batch_norm(7.0, 3.0, inverse, 10.0, 1.0), 21.0);
  EXPECT_DOUBLE_EQ(moving_average(1.0, 3.0, 0.25), 1.5);
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
  for (int i = 0; i < 3; ++i) sum += softmax_backward(p[i], i == 1, 0.25);
  EXPECT_NEAR(sum, 0, 1e-16);
  EXPECT_DOUBLE_EQ(softmax_backward(p[1], true, 0.25), -0.175);
}

}  // namespace
}  // namespace halfmark::formulas
