#include "bench/run/case_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/gate_rules.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

constexpr const char* kHot = "hot";

bool is_measured(const Record& record) { return record.status == Status::ok || record.status == Status::suspect; }

std::vector<double> times_of(const Record& record) {
  const Measurement* times = find(record, kProcessTime, kHot);
  return times ? times->samples : std::vector<double>();
}

void set_times(Record& record, std::vector<double> seconds) {
  std::erase_if(record.measurements, [](const Measurement& one) { return one.metric == kProcessTime; });
  if (seconds.empty()) return;
  Measurement times;
  times.metric = std::string(kProcessTime), times.at = kHot, times.unit = "s";
  times.better = Better::lower, times.kind = Kind::sampled;
  times.value = median(seconds);
  times.samples = std::move(seconds);
  record.measurements.push_back(std::move(times));
}

bool is_worse(double value, const Measurement& than) {
  if (std::isnan(value) || std::isnan(than.value)) return std::isnan(value);
  if (than.better == Better::higher) return value < than.value;
  return than.better == Better::lower ? value > than.value : std::fabs(value) > std::fabs(than.value);
}

// If the bits of a case differ between processes, each number has one value per process. The worst one becomes the
// value, and all are kept as samples.
void add_values(Record& so_far, const Record& run) {
  const auto earlier = static_cast<size_t>(so_far.determinism.processes - 1);
  for (Measurement& one : so_far.measurements) {
    if (one.kind != Kind::exact && one.kind != Kind::bounded) continue;
    const Measurement* other = find(run, one.metric, one.at);
    if (!other) continue;
    if (one.samples.empty()) one.samples.assign(earlier, one.value);  // they had the same bits
    one.samples.push_back(other->value);
    if (is_worse(other->value, one)) one.value = other->value;
  }
}

}  // namespace

Record with_process(std::optional<Record> so_far, Record run) {
  if (!so_far) {
    so_far = run;
    so_far->determinism = {is_measured(run) ? 1 : 0, 0};
  } else if (!is_measured(run)) {
    so_far->status = Status::failed;
    so_far->reason =
        fmt::format("{} in process {}: {}", name_of(run.status), so_far->determinism.processes + 1, run.reason);
    so_far->seconds += run.seconds;
    return std::move(*so_far);
  } else {
    ++so_far->determinism.processes;
    const bool same_bits = run.fingerprint == so_far->fingerprint;
    if (!same_bits) ++so_far->determinism.differing;
    if (so_far->determinism.differing > 0) add_values(*so_far, run);
    run.seconds += so_far->seconds;
    so_far->seconds = run.seconds;
    if (so_far->status == Status::suspect && run.status == Status::ok && so_far->determinism.differing == 0) {
      std::vector<double> times = times_of(*so_far);
      const Determinism determinism = so_far->determinism;
      so_far = run;
      so_far->determinism = determinism;
      set_times(*so_far, std::move(times));
    }
  }
  if (const Measurement* step = find(run, "time.step", kHot); step && is_measured(run)) {
    std::vector<double> times = times_of(*so_far);
    times.push_back(step->value);
    set_times(*so_far, std::move(times));
  }
  return std::move(*so_far);
}

bool is_complete(const Record& record, int processes) {
  return !is_measured(record) || record.determinism.processes >= processes;
}

}  // namespace halfmark::bench
