// What a precision gains: time and memory of a training step, phase by phase.
#pragma once

#include "accuracy/accuracy.h"

namespace halfmark {

Harness throughput_harness();
Harness memory_harness();

// Phases whose kernels run inside a timed region of the throughput harness.
bool is_timed_phase(std::string_view phase);

}  // namespace halfmark
