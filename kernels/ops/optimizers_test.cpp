// The formulas of optimizers beside the textbook.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::formulas {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

template <class T>
UpdateStep<T> sgd(T parameter, T gradient, T velocity, double rate, double momentum, double decay,
                  bool nesterov = false) {
  const auto constants = sgd_constants<T>(rate, momentum, 0, decay, nesterov, false);
  return sgd_step(parameter, gradient, velocity, constants, momentum != 0, decay != 0);
}

TEST(Optimizers, SgdIsTheTextbookStep) {
  const auto step = sgd(1.0, 0.5, 2.0, 0.1, 0.9, 0.01);
  EXPECT_DOUBLE_EQ(step.first, 0.9 * 2.0 + 0.5 + 0.01 * 1.0);
  EXPECT_DOUBLE_EQ(step.kept - step.change, 1.0 - 0.1 * step.first);
  const auto ahead = sgd(1.0, 0.5, 2.0, 0.1, 0.9, 0.01, true);
  EXPECT_DOUBLE_EQ(ahead.change, 0.1 * (0.51 + 0.9 * step.first));
}

TEST(Optimizers, SgdWithoutMomentumIgnoresAnInfiniteVelocity) {
  const auto step = sgd(1.0f, 0.5f, kInfinite, 1, 0, 0);
  EXPECT_EQ(step.kept - step.change, 0.5f);
}

TEST(Optimizers, SgdWithoutDecayLeavesTheParameterOutOfTheDirection) {
  const auto step = sgd(kInfinite, 0.5f, 2.0f, 1, 0.5, 0);
  EXPECT_EQ(step.first, 1.5f);
  EXPECT_EQ(step.kept - step.change, kInfinite);
}

TEST(Optimizers, AKerasEpsilonIsAddedBeforeTheBiasIsCorrected) {
  // g = 1e-8, rate 0.1, first step: PyTorch moves by rate / 2, Keras with the same epsilon by rate / (1 + sqrt(1000)).
  const auto torch = adam_constants<double>(AdamKind::adam, 0.1, 0.9, 0.999, 1e-8, 0, 1);
  const auto keras = adam_constants<double>(AdamKind::keras, 0.1, 0.9, 0.999, 1e-8, 0, 1);
  EXPECT_NEAR(adam_step<AdamKind::adam>(0.0, 1e-8, 0.0, 0.0, torch, false).change, 0.05, 1e-12);
  EXPECT_NEAR(adam_step<AdamKind::keras>(0.0, 1e-8, 0.0, 0.0, keras, false).change, 0.1 / (1 + std::sqrt(1000)), 1e-12);
}

TEST(Optimizers, ClippingShrinksAtTheLimitAndKeepsNaN) {
  EXPECT_EQ(clip_factor(0.5f, 1.0f), 1.0f);
  EXPECT_LT(clip_factor(3.0, 3.0), 1.0);
  EXPECT_EQ(clip_factor(kInfinite, 1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
}

}  // namespace
}  // namespace halfmark::kernels::formulas
