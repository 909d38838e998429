// The training step of a trial that is timed: its kernels launched one by one, or as a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/namespaces.h"
#include "models/recorded_step.h"
#include "models/trial.h"

namespace halfmark::bench {

// The axis of throughput for how the kernels of a step are started: one by one, or as a CUDA graph.
inline constexpr std::string_view kLaunchAxis = "launch";

// Forward, backward and update, without waiting for the device. Its first call compiles and plans.
void launch_step(Trial& trial);

// Whether the device can idle while the host enqueues work for it: a GPU. A host that is interrupted for a second gives false.
bool can_pause(Device& device);

bool is_timed_as_graph(const TrialSpec& spec);

class TimedStep {
 public:
  // Each step takes `slow_down` of its time more: a planted fault, for tests. Throws Unsupported if the device cannot record
  // the step.
  TimedStep(Trial& trial, bool as_graph, double slow_down = 0);
  void run();  // enqueues a step
  double seconds();
  std::optional<kernels::RecordedCounts> counts() const;    // of a graph
  std::optional<double> seconds_after_pause(double pause);  // Device::time_after_pause
  void move_memory(const std::vector<int64_t>& pads);       // Trial::move_memory; a graph is recorded again

 private:
  Trial& trial_;
  double slow_down_;
  std::optional<models::RecordedStep> graph_;
};

}  // namespace halfmark::bench
