// The stopping rule of every timed loop.
#include "bench/run/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "bench/namespaces.h"
#include "bench/run/interruption.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

Sampled sample_until(const StoppingRule& rule, const std::function<double()>& take) {
  const auto start = std::chrono::steady_clock::now();
  Sampled sampled;
  double timed = 0;
  while (true) {
    stop_if_interrupted();
    sampled.samples.push_back(take());
    timed += sampled.samples.back();
    const int count = static_cast<int>(sampled.samples.size());
    // Computing the interval sorts all samples, which takes longer than a short sample: not done every time.
    const bool look = count <= 32 || count % 16 == 0 || count >= rule.max_samples;
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double used = std::max(timed, wall);
    const bool spent = used >= rule.budget;
    if (count < rule.min_samples || (!look && !spent)) continue;
    const double middle = median(sampled.samples);
    const double half_width = median_interval(sampled.samples).half_width();
    sampled.half_width = middle > 0 ? half_width / middle : std::numeric_limits<double>::infinity();
    if (sampled.half_width < rule.target) return sampled.stopped_by = StoppedBy::target, sampled;
    if (count >= rule.max_samples) return sampled.stopped_by = StoppedBy::samples, sampled;
    if (spent && (sampled.half_width <= kWidestHalfWidth || used >= rule.patience))
      return sampled.stopped_by = StoppedBy::budget, sampled;
  }
}

}  // namespace halfmark::bench
