// What a precision gains: time and memory of a training step, phase by phase.
#pragma once

#include <string_view>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// The learning rate while time is taken: so small that a million steps leave the parameters where they are, and no
// product is subnormal. The arithmetic of every sample is then the same.
inline constexpr double kStandstillRate = 1e-12;

Harness throughput_harness();
Harness memory_harness();

// Phases whose kernels run inside a timed region of the throughput harness.
bool is_timed_phase(std::string_view phase);

}  // namespace halfmark::bench
