#include "bench/run/step_energy.h"

#include <algorithm>
#include <cmath>

#include "bench/run/interruption.h"

namespace halfmark::bench {

namespace {

constexpr double kEnergyBatch = 0.02;   // seconds of steps between two readings, which take up to 1 ms
constexpr double kUpdate = 0.1;         // seconds between two changes of the counter, at most
constexpr double kLeastInterval = 1;    // seconds
constexpr double kLongestTrial = 3;     // seconds
constexpr double kUncertainty = 0.05;   // of the interval
constexpr double kLongestConstant = 1;  // seconds after which a counter that has not changed is none

struct CounterChange {
  double seconds = 0, joules = 0;
  int64_t steps = 0;
};

}  // namespace

std::optional<StepEnergy> step_energy(Device& device, const std::function<void()>& step, const SecondsNow& now) {
  const auto counter = [&] {
    const auto state = device.state();
    return state ? state->energy : kernels::DeviceState::kUnknown;
  };
  double last = counter();
  if (!std::isfinite(last)) return {};
  const double start = now();
  double before = start, longest = 0;
  std::optional<CounterChange> first;
  int64_t steps = 0, batch = 1;
  while (true) {
    stop_if_interrupted();
    for (int64_t i = 0; i < batch; ++i) step();
    device.synchronize();
    steps += batch;
    const CounterChange here{now(), counter(), steps};
    if (!std::isfinite(here.joules) || here.joules < last) return {};
    const double between = here.seconds - before;
    before = here.seconds;
    if (first) longest = std::max(longest, between);
    if (here.joules != last) {
      last = here.joules;
      if (!first) {
        first = here;
      } else {
        // Each change was at some time since the reading before it, and the counter holds what was used until then.
        const double seconds = here.seconds - first->seconds;
        if (seconds >= kLeastInterval && std::min(longest, kUpdate) <= kUncertainty * seconds)
          return StepEnergy{here.joules - first->joules, seconds, here.steps - first->steps};
      }
    }
    const double used = here.seconds - start;
    if (used >= kLongestTrial || (!first && used >= kLongestConstant && steps > batch)) return {};
    if (between < kEnergyBatch / 2) batch *= 2;
  }
}

}  // namespace halfmark::bench
