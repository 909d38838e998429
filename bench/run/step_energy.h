// Energy of a training step on a GPU, from the counter of the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bench/namespaces.h"
#include "bench/run/device_meter.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

struct StepEnergy {
  double joules = 0, seconds = 0;
  int64_t steps = 0;
};

// Runs steps for a second or more. The counter changes each 20 to 100 ms, so the steps are counted from one change to
// another, and the time between these is long against the uncertainty of when they were: 5 % at most. Nothing: the device
// has no counter, or three seconds are not enough. Steps under a lowered clock count too. `step` enqueues one step.
std::optional<StepEnergy> step_energy(Device& device, const std::function<void()>& step,
                                      const SecondsNow& now = steady_seconds);

}  // namespace halfmark::bench
