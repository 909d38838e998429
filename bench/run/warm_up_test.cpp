#include "bench/run/warm_up.h"

#include <gtest/gtest.h>

#include <functional>

namespace halfmark::bench {
namespace {

// Steps on a clock of its own; `seconds(t)` is how long the step that starts at t takes.
struct WarmingMachine {
  std::function<double(double)> seconds;
  double time = 0;
  int steps = 0;
  double warmed(const WarmUp& how) {
    warm_up(
        how, [&] { time += seconds(time), ++steps; }, [&] { return time; });
    return time;
  }
};

TEST(WarmUp, EndsSoonIfStepsDoNotBecomeFaster) {
  WarmingMachine steady{[](double) { return 1e-3; }};
  EXPECT_NEAR(steady.warmed({0.02, 1}), 0.04, 0.003);
  WarmingMachine slow{[](double) { return 5.0; }};
  slow.warmed({0.02, 1});
  EXPECT_EQ(slow.steps, 2);
}

TEST(WarmUp, GoesOnWhileStepsBecomeFaster) {
  // 5 % faster every 20 ms until 300 ms.
  WarmingMachine machine{[](double t) { return 1e-3 * (t < 0.3 ? 1.75 - 2.5 * t : 1); }};
  const double end = machine.warmed({0.02, 1});
  EXPECT_GT(end, 0.25);
  EXPECT_LT(end, 0.4);
}

TEST(WarmUp, OutlastsAClockThatWaits) {
  // Low clocks for 200 ms, which look steady.
  WarmingMachine machine{[](double t) { return t < 0.2 ? 2e-3 : 1e-3; }};
  EXPECT_GT(machine.warmed(kGpuWarmUp), 0.5);
  EXPECT_LT(machine.time, 0.7);
}

TEST(WarmUp, HasALimit) {
  double seconds = 1e-2;
  WarmingMachine machine{[&](double) { return seconds *= 0.9; }};
  machine.warmed({0.02, 0.05});
  EXPECT_LT(machine.time, 0.08);
}

}  // namespace
}  // namespace halfmark::bench
