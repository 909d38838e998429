#include "bench/run/timed_step.h"

#include <chrono>
#include <string>

#include "bench/run/planted_slow_down.h"

namespace halfmark::bench {

void launch_step(Trial& trial) {
  trial.forward();
  trial.backward();
  trial.enqueue_update();
}

bool can_pause(Device& device) {
  for (const double pause : {1e-3, 1e-2, 0.1, 1.0})
    if (device.time_after_pause(pause, [] {})) return true;
  return false;
}

bool is_timed_as_graph(const TrialSpec& spec) {
  const auto launch = spec.axes.find(std::string(kLaunchAxis));
  return launch != spec.axes.end() && launch->second == "graph";
}

TimedStep::TimedStep(Trial& trial, bool as_graph, double slow_down) : trial_(trial), slow_down_(slow_down) {
  if (as_graph) graph_.emplace(trial);
}

void TimedStep::run() {
  if (graph_)
    graph_->run();
  else
    launch_step(trial_);
}

double TimedStep::seconds() {
  return trial_.device().time([&] {
    const auto start = std::chrono::steady_clock::now();
    run();
    if (slow_down_ > 0) linger(start, slow_down_);
  });
}

std::optional<kernels::RecordedCounts> TimedStep::counts() const {
  return graph_ ? std::optional(graph_->counts()) : std::nullopt;
}

std::optional<double> TimedStep::seconds_after_pause(double pause) {
  return trial_.device().time_after_pause(pause, [&] { run(); });
}

void TimedStep::move_memory(const std::vector<int64_t>& pads) {
  const bool as_graph = graph_.has_value();
  graph_.reset();
  trial_.move_memory(pads);
  if (as_graph) graph_.emplace(trial_);
}

}  // namespace halfmark::bench
