#include "bench/run/operation_seconds.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/timed_step.h"
#include "kernels/ops/operation_times.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

using kernels::OperationTimes;
using Times = std::vector<OperationTimes::Time>;
constexpr int kSteps = 9;
constexpr double kFirstPause = 0.01, kLongestPause = 1;  // seconds

Times times_of_host(Trial& trial) {
  const OperationTimes times(trial.device());
  launch_step(trial);
  return times.times();
}

// A step behind a pause of the device, so that no kernel waits for its launch. Nothing: the host took longer.
std::optional<Times> times_behind_pause(Trial& trial, double pause) {
  const OperationTimes times(trial.device());
  if (!trial.device().time_after_pause(pause, [&] { launch_step(trial); })) return {};
  return times.times();
}

}  // namespace

const std::vector<MetricRow>& operation_table() {
  static const std::vector<MetricRow> rows = {
      {"time.operation", "s", Better::lower, Kind::information,
       "seconds of a hot step in all calls of an operation: cast is conversions, reorder layout changes, without those "
       "that a kernel of another operation makes itself; median of 9 steps. On a GPU between events, which add about a "
       "microsecond to each call, and without waits for launches: absent where a pause does not cover them"}};
  return rows;
}

void write_operation_seconds(Trial& trial, FindingsWriter& out) {
  const bool is_host = !can_pause(trial.device());
  double pause = kFirstPause;
  const auto take = [&]() -> std::optional<Times> {
    if (is_host) return times_of_host(trial);
    for (; pause <= kLongestPause; pause *= 2)
      if (std::optional<Times> times = times_behind_pause(trial, pause)) return times;
    return {};
  };
  std::map<std::string, std::vector<double>> seconds;
  std::vector<std::string> order;  // of first use
  for (int step = 0; step < kSteps; ++step) {
    const std::optional<Times> times = take();
    if (!times) return;
    for (const OperationTimes::Time& one : *times) {
      std::vector<double>& of_operation = seconds[std::string(one.operation)];
      if (of_operation.empty()) order.emplace_back(one.operation);
      of_operation.push_back(one.seconds);
    }
  }
  for (const std::string& name : order) out.number("time.operation", name, median(seconds[name]));
}

}  // namespace halfmark::bench
