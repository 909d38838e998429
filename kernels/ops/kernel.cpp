#include "kernels/ops/kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/reorder_bytes.h"

namespace halfmark::kernels {

std::string_view name_of(Speed speed) { return speed == Speed::real ? "real" : "emulated"; }

void Signature::add(const Tensor& tensor) {
  if (tensor.empty()) return add(int64_t{-1});
  const Shape& shape = tensor.shape();
  add(static_cast<int64_t>(tensor.dtype()) | static_cast<int64_t>(tensor.layout()) << 8 | int64_t{shape.rank()} << 16);
  for (const int64_t extent : shape.extents()) add(extent);
  if (tensor.layout() == Layout::opaque) add(static_cast<int64_t>(tensor.opaque_layout()->hash()));
}

namespace {
thread_local KernelLog* log_now = nullptr;
thread_local RepeatsWatch* watch_now = nullptr;
thread_local ReorderBytes* reorders_now = nullptr;
thread_local std::string_view phase_now = "";
thread_local int rows_now = 0;
}  // namespace

RowScope::RowScope() { ++rows_now; }
RowScope::~RowScope() { --rows_now; }
bool RowScope::is_inside() { return rows_now > 0; }
KernelLog::KernelLog() : outer_(log_now) { log_now = this; }
KernelLog::~KernelLog() { log_now = outer_; }
RepeatsWatch::RepeatsWatch() : outer_(watch_now) { watch_now = this; }
RepeatsWatch::~RepeatsWatch() { watch_now = outer_; }
void RepeatsWatch::see(Repeats repeats) {
  if (repeats == Repeats::by_construction) return;
  for (RepeatsWatch* watch = watch_now; watch; watch = watch->outer_) watch->all_ = false;
}
LogPause::LogPause() : paused_(log_now) { log_now = nullptr; }
LogPause::~LogPause() { log_now = paused_; }

std::vector<LoggedKernel> KernelLog::entries() const {
  // Several shapes of one operation may share an entry: the log distinguishes rows, not shapes.
  std::vector<LoggedKernel> merged;
  for (const Count& count : counts_) {
    LoggedKernel entry = count.what;
    entry.phase = count.phase;
    entry.calls = count.calls;
    const uint64_t counted = count.nested ? 0 : count.calls;
    entry.read *= counted, entry.written *= counted;
    for (auto& [type, flops] : entry.flops) flops *= static_cast<double>(counted);
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const LoggedKernel& m) {
      return m.operation == entry.operation && m.phase == entry.phase && m.dtypes == entry.dtypes && m.row == entry.row;
    });
    if (same == merged.end()) {
      merged.push_back(std::move(entry));
      continue;
    }
    same->calls += entry.calls;
    same->read += entry.read, same->written += entry.written;
    for (const auto& [type, flops] : entry.flops) same->flops[type] += flops;
    const auto add_new = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
      for (const std::string& one : from)
        if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
    };
    add_new(same->refusals, entry.refusals), add_new(same->choices, entry.choices);
  }
  return merged;
}

bool KernelLog::any_emulated() const {
  return std::any_of(counts_.begin(), counts_.end(), [](const Count& c) { return c.what.speed == Speed::emulated; });
}

bool KernelLog::has_same_calls(const KernelLog& other) const {
  if (counts_.size() != other.counts_.size()) return false;
  return std::all_of(counts_.begin(), counts_.end(), [&](const Count& mine) {
    return std::any_of(other.counts_.begin(), other.counts_.end(), [&](const Count& theirs) {
      return theirs.choice == mine.choice && theirs.phase == mine.phase && theirs.nested == mine.nested &&
             theirs.calls == mine.calls;
    });
  });
}

ReorderBytes::ReorderBytes() : outer_(reorders_now) { reorders_now = this; }
ReorderBytes::~ReorderBytes() { reorders_now = outer_; }

void ReorderBytes::add(uint64_t read, uint64_t written) {
  if (!log_now) return;  // of an oracle or a reference
  for (ReorderBytes* bytes = reorders_now; bytes; bytes = bytes->outer_) {
    auto found = std::ranges::find(bytes->moved_, phase_now, &Moved::phase);
    if (found == bytes->moved_.end()) found = bytes->moved_.insert(found, {phase_now});
    ++found->calls, found->read += read, found->written += written;
  }
}

PhaseScope::PhaseScope(std::string_view phase) : outer_(phase_now) { phase_now = phase; }
PhaseScope::~PhaseScope() { phase_now = outer_; }

void KernelLog::count(const void* choice, const LoggedKernel& what) {
  for (KernelLog* log = log_now; log; log = log->outer_) {
    auto& counts = log->counts_;
    const auto found = std::find_if(counts.begin(), counts.end(), [&](const Count& each) {
      return each.choice == choice && each.phase.data() == phase_now.data() && each.nested == (rows_now > 0);
    });
    if (found != counts.end())
      ++found->calls;
    else
      counts.push_back({choice, phase_now, rows_now > 0, 1, what});
  }
}

}  // namespace halfmark::kernels
