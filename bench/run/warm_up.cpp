#include "bench/run/warm_up.h"

#include <algorithm>
#include <limits>

namespace halfmark::bench {

void warm_up(const WarmUp& how, const std::function<void()>& step, const std::function<double()>& now) {
  constexpr double kWindow = 0.02, kFaster = 0.98;
  const double start = now();
  double fastest = std::numeric_limits<double>::infinity();
  for (int windows = 0;; ++windows) {
    const double begin = now();
    double end = begin;
    int steps = 0;
    for (; steps == 0 || end - begin < kWindow; ++steps) step(), end = now();
    const double one = (end - begin) / steps;
    const bool improves = one < kFaster * fastest;
    fastest = std::min(fastest, one);
    const double elapsed = end - start;
    if (windows > 0 && (elapsed >= how.most || (elapsed >= how.least && !improves))) return;
  }
}

}  // namespace halfmark::bench
