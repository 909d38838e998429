#include "kernels/tensor/memory.h"

namespace halfmark::kernels {

std::string_view name_of(Purpose purpose) {
  static_assert(kPurposes == static_cast<size_t>(Purpose::other) + 1);
  switch (purpose) {
    case Purpose::weights:
      return "weights";
    case Purpose::master:
      return "master";
    case Purpose::gradients:
      return "gradients";
    case Purpose::optimizer:
      return "optimizer";
    case Purpose::state:
      return "state";
    case Purpose::saved:
      return "saved";
    case Purpose::temporary:
      return "temporary";
    case Purpose::casts:
      return "casts";
    case Purpose::workspace:
      return "workspace";
    case Purpose::input:
      return "input";
    case Purpose::other:
      return "other";
  }
  return "?";
}

void MemoryLedger::note_peak() {
  if (live_.total > peak_.total) peak_ = live_;
}

void MemoryLedger::add(Purpose purpose, size_t bytes) {
  live_.total += bytes;
  live_.by_purpose[static_cast<size_t>(purpose)] += bytes;
  note_peak();
}

void MemoryLedger::remove(Purpose purpose, size_t bytes) {
  live_.total -= bytes;
  live_.by_purpose[static_cast<size_t>(purpose)] -= bytes;
}

void MemoryLedger::retag(Purpose from, Purpose to, size_t bytes) {
  live_.by_purpose[static_cast<size_t>(from)] -= bytes;
  live_.by_purpose[static_cast<size_t>(to)] += bytes;
}

namespace {
thread_local Purpose purpose_now = Purpose::temporary;
}

Purpose current_purpose() { return purpose_now; }
PurposeScope::PurposeScope(Purpose purpose) : outer_(purpose_now) { purpose_now = purpose; }
PurposeScope::~PurposeScope() { purpose_now = outer_; }

}  // namespace halfmark::kernels
