// Compares the loss scale step by step with torch.amp.GradScaler.
#include "models/scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <tuple>

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

// The scale after each step with these overflows, from 4 and with an interval of 2; "raise" where the framework stops.
struct Trajectory {
  const char* scaler;
  double floor, cap;
  const char* scales;
};

std::string trajectory(ScalerSpec spec, std::string_view overflows) {
  spec.initial = 4, spec.interval = 2;
  Scaler scaler(spec);
  std::string text;
  for (const char step : overflows) {
    scaler.update(step == 'x');
    if (scaler.stopped()) return text + "raise";
    std::ostringstream number;
    number << scaler.scale() << ' ';
    text += number.str();
  }
  return text;
}

// torch: its GradScaler run on the pattern. The others: their update functions, followed by hand.
TEST(Scaler, FollowsTheTrajectoryOfEachFramework) {
  const double none = std::numeric_limits<double>::infinity();
  const Trajectory table[] = {
      {"torch", 0, none, "4 8 4 4 8 4 2 2 1 0.5 0.25 0.25 "},
      {"keras", 0, none, "4 8 4 4 8 4 2 2 1 0.5 0.25 0.25 "},
      {"apex", 0, 0x1p24, "4 8 4 4 8 4 2 2 1 0.5 0.25 0.25 "},
      {"apex", 1, 8, "4 8 4 4 8 4 2 2 1 1 1 1 "},
      {"tensorflow", 1, none, "4 8 4 4 8 4 2 2 1 1 1 1 "},
      {"apex-legacy", 1, none, "4 8 4 4 8 4 2 2 1 1 1 1 "},
      {"deepspeed", 1, none, "4 4 4 4 4 2 1 1 raise"},
      {"deepspeed-consecutive", 1, none, "4 4 4 4 4 4 2 2 2 1 raise"},
      {"apex-hysteresis", 0, none, "4 8 8 8 16 16 8 8 8 4 2 2 "},
  };
  for (const Trajectory& row : table) {
    ScalerSpec spec = scaler_of(row.scaler);
    EXPECT_EQ(spec.floor, row.scaler == std::string("apex") ? 0 : row.floor) << row.scaler;
    spec.floor = row.floor, spec.cap = row.cap;
    EXPECT_EQ(trajectory(spec, "..x..xx.xxx."), row.scales) << row.scaler;
  }
  ScalerSpec one = scaler_of("deepspeed");
  one.hysteresis = 1;
  EXPECT_EQ(trajectory(one, "..x..xx.xxx."), "4 4 2 2 2 1 raise") << "DeepSpeed with hysteresis 1";
}

TEST(Scaler, OfDeepSpeedGrowsAStepLaterSinceJune2025) {
  EXPECT_EQ(trajectory(scaler_of("deepspeed"), "......"), "4 4 8 8 16 16 ");
  EXPECT_EQ(trajectory(scaler_of("deepspeed-2024"), "......"), "4 8 8 16 16 32 ");
  EXPECT_EQ(trajectory(scaler_of("deepspeed"), "x....x..."), "4 4 4 8 8 8 8 8 16 ")
      << "the growth gives the overflow of the start back";
  EXPECT_EQ(trajectory(scaler_of("megatron"), "x....x..."), "4 4 8 8 16 16 16 32 32 ");
}

TEST(Scaler, StartsWithTheDefaultsOfEachFramework) {
  const std::tuple<const char*, double, int> table[] = {
      {"torch", 0x1p16, 2000},      {"apex", 0x1p16, 2000},      {"apex-legacy", 0x1p32, 1000}, {"keras", 0x1p15, 2000},
      {"tensorflow", 0x1p15, 2000}, {"deepspeed", 0x1p16, 1000}, {"megatron", 0x1p32, 1000},
  };
  for (const auto& [name, initial, interval] : table) {
    EXPECT_EQ(scaler_of(name).initial, initial) << name;
    EXPECT_EQ(scaler_of(name).interval, interval) << name;
  }
}

TEST(Scaler, OfApexStopsAtTwoToThe24AndThatOfKerasGrowsToInfinity) {
  ScalerSpec apex = scaler_of("apex:8388608:1"), keras = scaler_of("keras:1:1");
  keras.initial = 0x1p127;
  Scaler capped(apex), unlimited(keras);
  capped.update(false), capped.update(false);
  EXPECT_EQ(capped.scale(), 0x1p24f);
  unlimited.update(false);
  EXPECT_TRUE(std::isinf(unlimited.scale()));
  unlimited.update(true);
  EXPECT_TRUE(std::isinf(unlimited.scale())) << "half of infinity: Keras does not recover";
}

TEST(ScalerText, IsReadBackAndNamesWhatDiffers) {
  for (const ScalerRow& row : scalers()) EXPECT_EQ(text_of(scaler_of(row.name)), row.name);
  for (const char* text : {"static:1", "static:0.5", "torch:1024", "torch:1024:100", "deepspeed:65536:10"})
    EXPECT_EQ(text_of(scaler_of(text)), text);
  EXPECT_EQ(text_of(scaler_of("static:128")), "static");
  EXPECT_EQ(text_of(scaler_of("torch:1e38")), "torch:1e38");  // without a plus sign
  EXPECT_EQ(text_of(scaler_of("static:1e-30")), "static:1e-30");
  EXPECT_EQ(text_of(scaler_of("torch:65536:2000")), "torch");
  EXPECT_EQ(scaler_of("static:1e6").initial, 1e6);
  for (const char* text : {"", "torhc", "none:1", "static:", "static:0", "static:-1", "static:nan", "static:inf",
                           "static:1:2", "torch:1:0", "torch:1:2.5", "torch:1:2:3", "static:1e39", "static: 1"})
    EXPECT_THROW(scaler_of(text), Error) << text;
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
  // Seen with torch.amp.GradScaler on the same pattern.
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

TEST(Scaler, UnscalesAllGradientsInOneOperation) {
  Scaler scaler(dynamic());
  Param first = with_gradient(65536), none{"none", {}, {}, {}}, second = with_gradient(131072, DType::f64);
  const kernels::KernelLog log;
  EXPECT_FALSE(scaler.unscale(*test_device(), {&first, &none, &second}));
  ASSERT_EQ(log.entries().size(), 1u);
  EXPECT_EQ(log.entries()[0].calls, 1u);
  EXPECT_EQ(first.grad.values()[0], 1);
  EXPECT_EQ(second.grad.values()[0], 2);
  EXPECT_FALSE(scaler.unscale(*test_device(), {&none})) << "nothing to unscale";
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
