// The stopping rule of every timed loop.
#include "bench/run/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/namespaces.h"
#include "bench/run/interruption.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

// All samples, and how many of those that are left are known to count.
class Samples {
 public:
  void add(double seconds) {
    left_.samples.push_back(seconds), left_.taken.push_back(all_.size());
    all_.push_back(seconds);
  }
  void judge(const std::optional<bool>& counts) {
    if (!counts) return;
    if (!*counts) left_.samples.resize(known_), left_.taken.resize(known_);
    known_ = left_.samples.size();
  }
  bool is_open() const { return known_ < left_.samples.size(); }
  size_t count() const { return all_.size(); }
  Sampled& left() { return left_; }

  void discard_others() { left_.discarded = all_.size() - left_.samples.size(); }
  void keep_all(size_t most) {
    const size_t first = all_.size() - std::min(all_.size(), most);
    const std::vector<size_t> counting = std::move(left_.taken);
    left_.samples.assign(all_.begin() + static_cast<std::ptrdiff_t>(first), all_.end());
    left_.taken.resize(left_.samples.size());
    std::iota(left_.taken.begin(), left_.taken.end(), first);
    const auto kept = std::count_if(counting.begin(), counting.end(), [&](size_t one) { return one >= first; });
    left_.slowed = 1 - static_cast<double>(kept) / static_cast<double>(left_.samples.size());
  }

 private:
  std::vector<double> all_;
  size_t known_ = 0;
  Sampled left_;
};

void find_half_width(Sampled& sampled) {
  const double middle = median(sampled.samples);
  const double half_width = median_interval(sampled.samples).half_width();
  sampled.half_width = middle > 0 ? half_width / middle : std::numeric_limits<double>::infinity();
}

// What ends the sampling now, if anything does.
std::optional<StoppedBy> stop_of(const StoppingRule& rule, Sampled& sampled, double used) {
  const int count = static_cast<int>(sampled.samples.size());
  // Computing the interval sorts all samples, which takes longer than a short sample: not done every time.
  const bool look = count <= 32 || count % 16 == 0 || count >= rule.max_samples;
  const bool spent = used >= rule.budget;
  if (count < rule.min_samples || (!look && !spent)) return {};
  find_half_width(sampled);
  if (sampled.half_width < rule.target) return StoppedBy::target;
  if (count >= rule.max_samples) return StoppedBy::samples;
  if (spent && (sampled.half_width <= kWidestHalfWidth || used >= rule.patience)) return StoppedBy::budget;
  return {};
}

}  // namespace

Sampled sample_until(const StoppingRule& rule, const std::function<double()>& take, const Judge& judge) {
  const auto start = std::chrono::steady_clock::now();
  Samples samples;
  double timed = 0;
  while (true) {
    stop_if_interrupted();
    const double seconds = take();
    samples.add(seconds);
    timed += seconds;
    samples.judge(judge(false));
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double used = std::max(timed, wall);
    Sampled& sampled = samples.left();
    auto stop = stop_of(rule, sampled, used);
    const bool must_end = used >= rule.patience && samples.count() >= static_cast<size_t>(rule.min_samples);
    if ((stop || must_end) && samples.is_open()) {
      samples.judge(judge(true));
      stop = stop_of(rule, sampled, used);
    }
    if (stop) {
      samples.discard_others();
    } else if (must_end && sampled.samples.size() < static_cast<size_t>(rule.min_samples)) {
      samples.keep_all(static_cast<size_t>(rule.max_samples));
      find_half_width(sampled);
      stop = StoppedBy::budget;
    }
    if (stop) return sampled.stopped_by = *stop, std::move(sampled);
  }
}

}  // namespace halfmark::bench
