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
    case Purpose::emulation:
      return "emulation";
    case Purpose::input:
      return "input";
    case Purpose::padding:
      return "padding";
    case Purpose::other:
      return "other";
  }
  return "?";
}

bool is_of_tensors(Purpose purpose) {
  switch (purpose) {
    case Purpose::workspace:
    case Purpose::emulation:
    case Purpose::padding:
      return false;
    case Purpose::weights:
    case Purpose::master:
    case Purpose::gradients:
    case Purpose::optimizer:
    case Purpose::state:
    case Purpose::saved:
    case Purpose::temporary:
    case Purpose::casts:
    case Purpose::input:
    case Purpose::other:
      return true;
  }
  return true;
}

void MemoryLedger::note_peak() {
  if (live_.total > peak_.total) peak_ = live_;
  if (live_tensors_ > tensor_peak_.total) tensor_peak_ = tensors_alone();
}

MemoryUse MemoryLedger::tensors_alone() const {
  MemoryUse alone = live_;
  alone.total = live_tensors_;
  for (size_t i = 0; i < kPurposes; ++i)
    if (!is_of_tensors(static_cast<Purpose>(i))) alone.by_purpose[i] = 0;
  return alone;
}

void MemoryLedger::reset_peak() {
  peak_ = live_;
  tensor_peak_ = tensors_alone();
}

void MemoryLedger::add(Purpose purpose, size_t bytes) {
  live_.total += bytes;
  live_.by_purpose[static_cast<size_t>(purpose)] += bytes;
  if (is_of_tensors(purpose)) live_tensors_ += bytes;
  note_peak();
}

void MemoryLedger::remove(Purpose purpose, size_t bytes) {
  live_.total -= bytes;
  live_.by_purpose[static_cast<size_t>(purpose)] -= bytes;
  if (is_of_tensors(purpose)) live_tensors_ -= bytes;
}

void MemoryLedger::retag(Purpose from, Purpose to, size_t bytes) {
  live_.by_purpose[static_cast<size_t>(from)] -= bytes;
  live_.by_purpose[static_cast<size_t>(to)] += bytes;
  if (is_of_tensors(from)) live_tensors_ -= bytes;
  if (is_of_tensors(to)) live_tensors_ += bytes;
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
