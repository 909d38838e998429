#include "bench/run/time_validity.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include "bench/run/contention.h"
#include "bench/run/performance.h"
#include "bench/run/timing.h"
#include "kernels/cpu/thread_pool.h"

namespace halfmark::bench {

namespace {

constexpr size_t kRowsNamed = 3;

// The emulated kernels of the timed phases, as text; empty if there are none.
std::string emulated_rows(const Record& record) {
  std::set<std::string> named;
  for (const KernelUse& use : record.kernels)
    if (use.speed == "emulated" && is_timed_phase(use.phase))
      named.insert(use.operation + " " + use.dtypes + " by " + use.row);
  std::string rows;
  size_t shown = 0;
  for (const std::string& name : named) {
    if (++shown > kRowsNamed) return rows + fmt::format(" and {} more", named.size() - kRowsNamed);
    rows += (rows.empty() ? "" : ", ") + name;
  }
  return rows;
}

std::optional<std::string> contention_of(const Record& record) {
  const auto number = [&](std::string_view metric) {
    const Measurement* found = find(record, metric, "hot/step");
    return found ? found->value : std::numeric_limits<double>::quiet_NaN();
  };
  Contention found;
  found.others = number("contention.others"), found.stolen = number("contention.stolen");
  found.waiting = number("contention.waiting");
  return contention_reason(found, cores_of_machine(), host_threads());
}

// Where times were kept although the GPU lowered its clock, or while other processes used it: the first such place.
std::optional<std::string> state_of_gpu(const Record& record) {
  for (const Measurement& one : record.measurements) {
    if (one.metric == "device.slowed" && one.value > 0) {
      std::string reasons;
      for (const Measurement& reason : record.measurements)
        if (reason.metric == "device.slowed_by" && reason.at.starts_with(one.at + "/"))
          reasons += (reasons.empty() ? "" : ", ") + reason.at.substr(one.at.size() + 1);
      return fmt::format("the GPU lowered its clock while it was timed ({})",
                         reasons.empty() ? "for a reason that passed" : reasons);
    }
    if (one.metric == "device.other_processes" && one.value > 0)
      return one.value == 1
                 ? "another process had a context on the GPU while it was timed"
                 : fmt::format("{:.0f} other processes had a context on the GPU while it was timed", one.value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_times_mislead(const Record& record) {
  const bool timed = std::any_of(record.measurements.begin(), record.measurements.end(),
                                 [](const Measurement& one) { return one.kind == Kind::sampled; });
  if (!timed) return std::nullopt;
  if (const std::string rows = emulated_rows(record); !rows.empty())
    return "emulated arithmetic in the timed region, the timing is not valid: " + rows;
  if (auto reason = state_of_gpu(record)) return reason;
  if (auto reason = contention_of(record)) return reason;
  if (const Measurement* control = find(record, "speedup.control", "hot");
      control && control->interval && !control->interval->holds(1))
    return fmt::format(
        "the same step timed twice in turn has a ratio of {:.3f} ({:.3f} to {:.3f}) instead of 1: the times depend on "
        "more than the work",
        control->value, control->interval->lower, control->interval->upper);
  if (const Measurement* width = find(record, "timing.half_width", "hot/step");
      width && width->value > kWidestHalfWidth)
    return fmt::format("the median step is uncertain by {:.2g} %: the speed of this machine changes too much",
                       100 * width->value);
  return std::nullopt;
}

}  // namespace halfmark::bench
