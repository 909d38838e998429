// The stopping rule of timed loops: sample until the median is precise enough or the time budget is spent.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace halfmark::bench {

// A median whose 95 % interval is wider than this share of it on either side makes the record suspect.
inline constexpr double kWidestHalfWidth = 0.1;

// Sampling ends when the half-width of the 95 % order-statistic interval of the median is below target * median, or at
// max_samples. It also ends when `budget` seconds are spent, min_samples are taken and the half-width is below
// kWidestHalfWidth. On a busy machine it continues for at most `patience` seconds.
struct StoppingRule {
  double target = 0.01;
  int min_samples = 6;  // fewer have no 95 % interval
  int max_samples = 400;
  double budget = 0.1;  // seconds, including the untimed part of each sample
  double patience = 1;  // seconds
};

enum class StoppedBy { target, samples, budget };

struct Sampled {
  std::vector<double> samples;  // seconds, in the order of measurement
  StoppedBy stopped_by = StoppedBy::budget;
  double half_width = 0;        // relative to the median; infinite if there are too few samples
  std::vector<size_t> taken{};  // which calls of `take` gave the samples: 0 for the first
  size_t discarded = 0;         // samples that did not count
  double slowed = 0;            // share of the samples that did not count either, but without which there were too few
};

// Whether the samples since its last answer count; nothing: it says so later. `is_needed`: now.
using Judge = std::function<std::optional<bool>(bool is_needed)>;

// `take` returns one sample in seconds. Samples that do not count are discarded. If at the end of the patience fewer than
// min_samples are left, all are kept, at most the last max_samples. Throws Interrupted when a signal ends the run.
Sampled sample_until(
    const StoppingRule& rule, const std::function<double()>& take, const Judge& judge = [](bool) { return true; });

}  // namespace halfmark::bench
