// The throughput and memory harnesses: time and memory of a training step, by phase.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// The learning rate while timing: so small that a million steps do not change the parameters, and large enough that no
// product is subnormal. Every sample then has the same arithmetic.
inline constexpr double kStandstillRate = 1e-12;

// The axis of both for the storage of labels and indices. Case::trial sets it.
inline constexpr std::string_view kLabelsAxis = "labels";
accuracy::Axis labels_axis();
// The axis of throughput for autocast's cache of cast weights (Pass::caches_casts), likewise.
inline constexpr std::string_view kCastCacheAxis = "cast_cache";
// The reason for which labels of 64 bits say nothing about this subject; nothing: they do, or are not asked for.
std::optional<std::string> refuses_labels(const TrialSpec& spec);

Harness throughput_harness();
Harness memory_harness();

// Phases whose kernels run inside a timed region of the throughput harness.
bool is_timed_phase(std::string_view phase);

}  // namespace halfmark::bench
