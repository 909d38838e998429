// Simulated times for the tests of every decision about times: kinds of noise that a machine or a build causes although
// no code changed. All are seeded. Values are ln(time).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "reports/statistics/noise_facts.h"

namespace halfmark::reports {

struct SimulatedNoise {
  std::string name{};
  double spread = 0;         // of the runs of a case; 0: each case has its own, as measured (median kProcessSpread)
  double lag_one = 0;        // autocorrelation of runs (AR(1)); the spread stays the same
  double trend = 0;          // of each run against the one before it
  double walk = 0;           // standard deviation of a step of a random walk, each run
  double day = 0;            // standard deviation of the shift of a case on one day
  double layout = 0;         // standard deviation of the offset of one build, for each case by itself
  double common_layout = 0;  // the same, one offset for all cases of the build
  double outliers = 0;       // share of runs that take 1.3 times as long
  double slow_clock = 0;     // share of runs at a clock that is 6 % slower
};

// The kinds under which each decision promises at most 1 % false alarms.
inline std::vector<SimulatedNoise> noises_without_a_change() {
  return {{.name = "independent"},
          {.name = "independent, 3 %", .spread = kLargestProcessSpread},
          {.name = "outliers", .outliers = 0.02},
          {.name = "two clocks", .slow_clock = 0.2},
          {.name = "AR(1) 0.5", .spread = kLargestProcessSpread, .lag_one = 0.5},
          {.name = "AR(1) 0.8", .spread = kLargestProcessSpread, .lag_one = 0.8},
          {.name = "AR(1) 0.9", .spread = kLargestProcessSpread, .lag_one = 0.9},
          {.name = "AR(1) 0.9, typical", .lag_one = 0.9},
          {.name = "linear drift", .trend = 0.001},
          {.name = "random walk", .walk = 0.003},
          {.name = "day shifts 3 %", .day = kDaySpread},
          {.name = "day shifts, AR(1) 0.9", .spread = kLargestProcessSpread, .lag_one = 0.9, .day = kDaySpread}};
}

class NoiseSource {
 public:
  explicit NoiseSource(uint64_t seed) : random_(seed) {}
  double normal(double spread) { return spread > 0 ? spread * normal_(random_) : 0; }
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  uint64_t bits() { return random_(); }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<> normal_;
};

// The runs of one case on one machine, one after the other.
class SimulatedRuns {
 public:
  SimulatedRuns(const SimulatedNoise& noise, uint64_t seed) : noise_(noise), source_(seed) {
    // The model of 300 cases of decision_test.cpp.
    spread_ = noise.spread > 0
                  ? noise.spread
                  : std::clamp(kProcessSpread * std::exp(source_.normal(0.6)), 0.001, kLargestProcessSpread);
    state_ = source_.normal(1);
    next_day();
  }

  // Another day: a new shift. The memory of the machine is lost, its drift stays.
  void next_day() { shift_ = source_.normal(noise_.day), state_ = source_.normal(1); }

  double next() {
    state_ = noise_.lag_one * state_ + source_.normal(std::sqrt(1 - noise_.lag_one * noise_.lag_one));
    drift_ += noise_.trend + source_.normal(noise_.walk);
    double time = shift_ + drift_ + spread_ * state_;
    if (noise_.slow_clock > 0 && source_.uniform() < noise_.slow_clock) time += std::log(1.06);
    if (noise_.outliers > 0 && source_.uniform() < noise_.outliers) time += std::log(1.3);
    return time;
  }

  std::vector<double> next(size_t runs) {
    std::vector<double> times(runs);
    for (double& one : times) one = next();
    return times;
  }

 private:
  SimulatedNoise noise_;
  NoiseSource source_;
  double spread_ = 0, state_ = 0, drift_ = 0, shift_ = 0;
};

// HALFMARK_LONG=1 asks for the long simulation; otherwise one of the given fraction.
inline bool simulates_in_full() { return std::getenv("HALFMARK_LONG") != nullptr; }

}  // namespace halfmark::reports
