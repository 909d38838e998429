#include "kernels/tensor/memory.h"

#include <algorithm>

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
    case Purpose::emulation:
      return "emulation";
    case Purpose::input:
      return "input";
    case Purpose::other:
      return "other";
  }
  return "?";
}

void MemoryLedger::note_peak() {
  if (live_.total > peak_.total) peak_ = live_;
  tensor_peak_ = std::max(tensor_peak_, live_tensors());
}

size_t MemoryLedger::live_tensors() const {
  return live_.total - live_.by_purpose[static_cast<size_t>(Purpose::workspace)] -
         live_.by_purpose[static_cast<size_t>(Purpose::emulation)];
}

void MemoryLedger::reset_peak() {
  peak_ = live_;
  tensor_peak_ = live_tensors();
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
  note_peak();
}

namespace {
thread_local Purpose purpose_now = Purpose::temporary;
thread_local bool emulates_now = false;
}  // namespace

Purpose current_purpose() { return purpose_now; }
PurposeScope::PurposeScope(Purpose purpose) : outer_(purpose_now) {
  purpose_now = purpose == Purpose::workspace && emulates_now ? Purpose::emulation : purpose;
}
PurposeScope::~PurposeScope() { purpose_now = outer_; }

EmulationScope::EmulationScope(bool emulates) : outer_(emulates_now) { emulates_now = emulates_now || emulates; }
EmulationScope::~EmulationScope() { emulates_now = outer_; }

}  // namespace halfmark::kernels
