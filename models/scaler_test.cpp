// Compares the loss scale step by step with torch.amp.GradScaler.
#include "models/scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

ScalerSpec dynamic() { return {.kind = ScalerSpec::Kind::dynamic}; }

// A parameter with this gradient and no value.
Param with_gradient(double value, DType dtype = DType::f32) {
  Param param{"p", {}, {}, {}};
  param.grad = Tensor::from(*test_device(), {1}, dtype, std::vector<double>{value});
  return param;
}

TEST(Scaler, StartsAtTwoToTheSixteenthAndDoublesEveryIntervalOfCleanSteps) {
  Scaler scaler(dynamic());
  EXPECT_EQ(scaler.scale(), 65536.0f);
  for (int step = 1; step < 2000; ++step) {
    scaler.update(false);
    ASSERT_EQ(scaler.scale(), 65536.0f) << step;
    ASSERT_EQ(scaler.growth_tracker(), step);
  }
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0f);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(Scaler, HalvesOnAnOverflowAndRestartsTheCountOfCleanSteps) {
  ScalerSpec spec = dynamic();
  spec.interval = 3;
  Scaler scaler(spec);
  // clean, clean, overflow, clean, clean, clean, clean, overflow
  const bool overflow[] = {false, false, true, false, false, false, false, true};
  const float scale[] = {65536, 65536, 32768, 32768, 32768, 65536, 65536, 32768};
  const int tracker[] = {1, 2, 0, 1, 2, 0, 1, 0};
  for (size_t i = 0; i < std::size(overflow); ++i) {
    scaler.update(overflow[i]);
    EXPECT_EQ(scaler.scale(), scale[i]) << "step " << i;
    EXPECT_EQ(scaler.growth_tracker(), tracker[i]) << "step " << i;
  }
}

TEST(Scaler, GrowsOnlyWhileTheProductIsFiniteInFp32) {
  ScalerSpec spec = dynamic();
  spec.initial = 0x1p126, spec.interval = 1;
  Scaler scaler(spec);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127f);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127f) << "2^128 is not an fp32 number: the scale stays";
  EXPECT_EQ(scaler.growth_tracker(), 0) << "the count still restarts";
}

TEST(Scaler, HasNoLowerBound) {
  Scaler scaler(dynamic());
  int below_one = 0, infinite_inverse = 0, zero = 0;
  for (int skip = 1; skip <= 200; ++skip) {
    scaler.update(true);
    if (!below_one && scaler.scale() < 1) below_one = skip;
    if (!infinite_inverse && std::isinf(static_cast<float>(1 / static_cast<double>(scaler.scale()))))
      infinite_inverse = skip;
    if (!zero && scaler.scale() == 0) zero = skip;
  }
  // Measured in amp_semantics.md section 2.1.
  EXPECT_EQ(below_one, 17);
  EXPECT_EQ(infinite_inverse, 144);
  EXPECT_EQ(zero, 166);
}

TEST(Scaler, DetectsOverflowInTheScaledGradients) {
  Scaler scaler(dynamic());
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    Param good = with_gradient(2), broken = with_gradient(bad);
    EXPECT_TRUE(scaler.unscale(*test_device(), {&broken, &good})) << bad;
    EXPECT_EQ(good.grad.values()[0], 2 / 65536.0) << "the other gradients are still unscaled";
  }
  Param good = with_gradient(3e38);
  EXPECT_FALSE(scaler.unscale(*test_device(), {&good})) << "the flag of the previous step is reset";
}

TEST(Scaler, DoesNotFlagAnOverflowCausedByUnscaling) {
  ScalerSpec spec = dynamic();
  spec.initial = 0.25;
  Scaler scaler(spec);
  Param param = with_gradient(2e38);  // times 4 is beyond fp32
  EXPECT_FALSE(scaler.unscale(*test_device(), {&param}));
  EXPECT_TRUE(std::isinf(param.grad.values()[0]));
}

TEST(Scaler, IsExactForPowersOfTwo) {
  Scaler scaler(dynamic());
  const double value = 1.2345678806304932;  // an fp32 number
  Param param = with_gradient(value * 65536);
  scaler.unscale(*test_device(), {&param});
  EXPECT_EQ(param.grad.values()[0], value);
}

TEST(Scaler, DoesNothingWhenThePolicyHasNoLossScaling) {
  Scaler scaler(ScalerSpec{});
  Param param = with_gradient(HUGE_VAL);
  EXPECT_EQ(scaler.scale(), 1.0f);
  EXPECT_FALSE(scaler.unscale(*test_device(), {&param}));
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0f);
}

TEST(Scaler, WithAFixedScaleNeitherChecksNorChanges) {
  Scaler scaler({.kind = ScalerSpec::Kind::fixed, .initial = 128, .interval = 1});
  Param broken = with_gradient(HUGE_VAL), good = with_gradient(256);
  EXPECT_FALSE(scaler.unscale(*test_device(), {&broken, &good}));
  EXPECT_EQ(good.grad.values()[0], 2);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128.0f);
}

TEST(Scaler, RefusesFactorsThatCannotWork) {
  EXPECT_THROW(Scaler({.kind = ScalerSpec::Kind::dynamic, .growth = 1}), Error);
  EXPECT_THROW(Scaler({.kind = ScalerSpec::Kind::dynamic, .backoff = 1}), Error);
}

}  // namespace
}  // namespace halfmark::models
