// The throughput and memory harnesses: time and memory of a training step, by phase.
#pragma once

#include <string_view>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// The learning rate while timing: so small that a million steps do not change the parameters, and large enough that no
// product is subnormal. Every sample then has the same arithmetic.
inline constexpr double kStandstillRate = 1e-12;

Harness throughput_harness();
Harness memory_harness();

// Phases whose kernels run inside a timed region of the throughput harness.
bool is_timed_phase(std::string_view phase);

}  // namespace halfmark::bench
