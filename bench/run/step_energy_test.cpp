// Tests of the energy of a step, with a made-up clock and counter.
#include "bench/run/step_energy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "bench/run/device_meter_testing.h"

namespace halfmark::bench {
namespace {

struct EnergyTrial {
  std::optional<StepEnergy> found;
  int steps = 0;
  double seconds = 0;
};

// 300 W, in a counter that changes each `update` seconds. A reading takes `reading` seconds.
EnergyTrial energy_trial(double step, double update, double reading = 0) {
  EnergyTrial trial;
  CpuWithState gpu([&](int) {
    trial.seconds += reading;
    DeviceState state;
    state.energy = 1e6 + 300 * update * std::floor(trial.seconds / update);
    return state;
  });
  const auto run = [&] { trial.seconds += step, ++trial.steps; };
  trial.found = step_energy(gpu, run, [&] { return trial.seconds; });
  return trial;
}

TEST(StepEnergy, IsExactToFivePercent) {
  for (const double step : {1e-5, 1e-3, 0.013, 0.07, 0.3, 1.1})
    for (const double update : {0.02, 0.07, 0.1}) {
      const EnergyTrial trial = energy_trial(step, update);
      ASSERT_TRUE(trial.found) << step << " " << update;
      EXPECT_NEAR(trial.found->joules / static_cast<double>(trial.found->steps), 300 * step, 0.05 * 300 * step)
          << step << " " << update;
      EXPECT_NEAR(trial.found->joules / trial.found->seconds, 300, 0.05 * 300) << step << " " << update;
      EXPECT_GE(trial.found->seconds, 1);
      EXPECT_LT(trial.seconds, 4);
    }
}

TEST(StepEnergy, HoldsTheTimeOfReadingsTo5Percent) {
  const EnergyTrial trial = energy_trial(1e-3, 0.1, 1e-3);
  ASSERT_TRUE(trial.found);
  EXPECT_NEAR(trial.found->joules / static_cast<double>(trial.found->steps), 0.3, 0.1 * 0.3);
  EXPECT_GT(trial.steps, 900) << "few readings";
}

TEST(StepEnergy, IsAbsentWithoutACounterThatChanges) {
  CpuWithState none([](int) { return std::nullopt; }), silent([](int) { return DeviceState(); });
  for (CpuWithState* gpu : {&none, &silent}) {
    int steps = 0;
    EXPECT_FALSE(step_energy(*gpu, [&] { ++steps; }));
    EXPECT_EQ(steps, 0);
  }
  const EnergyTrial constant = energy_trial(1e-3, 1e9);
  EXPECT_FALSE(constant.found);
  EXPECT_LT(constant.seconds, 1.1);
}

TEST(StepEnergy, IsAbsentWhereThreeSecondsAreNotEnough) {
  EXPECT_FALSE(energy_trial(3.5, 0.1).found) << "one step before the first change";
  EXPECT_LT(energy_trial(3.5, 0.1).seconds, 4);
}

}  // namespace
}  // namespace halfmark::bench
