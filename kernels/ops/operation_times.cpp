#include "kernels/ops/operation_times.h"

#include <algorithm>

#include "kernels/ops/kernel.h"

namespace halfmark::kernels {

namespace {
thread_local OperationTimes* times_now = nullptr;
}  // namespace

OperationTimes::OperationTimes(Device& device) : device_(device), marks_(device.time_marks()), outer_(times_now) {
  times_now = this;
}
OperationTimes::~OperationTimes() { times_now = outer_; }

std::optional<size_t> OperationTimes::begin(const Device& device) {
  if (!times_now || &times_now->device_ != &device || RowScope::is_inside()) return {};
  return times_now->marks_->mark();
}

void OperationTimes::end(std::string_view operation, size_t begin) {
  times_now->spans_.push_back({operation, begin, times_now->marks_->mark()});
}

std::vector<OperationTimes::Time> OperationTimes::times() const {
  std::vector<Time> all;
  for (const Span& span : spans_) {
    auto found = std::ranges::find(all, span.operation, &Time::operation);
    if (found == all.end()) found = all.insert(all.end(), Time{span.operation});
    ++found->calls, found->seconds += marks_->seconds(span.begin, span.end);
  }
  return all;
}

}  // namespace halfmark::kernels
