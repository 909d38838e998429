#include "kernels/tensor/memory.h"

namespace halfmark::kernels {

std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposes> kNames{"weights",   "master", "gradients", "optimizer",
                                                           "state",     "saved",  "temporary", "casts",
                                                           "workspace", "input",  "other"};
  return kNames[static_cast<size_t>(purpose)];
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
