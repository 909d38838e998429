// When to stop taking samples: as soon as the median is known well enough, and never later than a budget allows.
#pragma once

#include <functional>
#include <vector>

namespace halfmark::bench {

// A median whose 95 % interval is wider than this share of it on either side is not shown as a speed.
inline constexpr double kWidestHalfWidth = 0.1;

// Sampling ends when the half-width of the 95 % order-statistic interval of the median is below target * median, at
// max_samples, or when budget seconds are spent, min_samples are there and the half-width is below kWidestHalfWidth:
// on a machine that is busy with something else it goes on, for `patience` seconds at most.
struct StoppingRule {
  double target = 0.01;
  int min_samples = 6;  // fewer have no 95 % interval
  int max_samples = 400;
  double budget = 0.1;  // seconds, the untimed part of taking a sample included
  double patience = 2;  // seconds
};

enum class StoppedBy { target, samples, budget };

struct Sampled {
  std::vector<double> samples;  // seconds, in the order taken
  StoppedBy stopped_by = StoppedBy::budget;
  double half_width = 0;  // relative to the median; infinite with too few samples
};

// `take` returns one sample in seconds. Throws Interrupted when the run is to end.
Sampled sample_until(const StoppingRule& rule, const std::function<double()>& take);

}  // namespace halfmark::bench
