// Two builds on one machine: which cases became slower, from pairs of process runs, and whether bytes and numbers are
// what they were.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/build.h"
#include "bench/ab/noise_profile.h"
#include "bench/ab/process_pairs.h"
#include "bench/namespaces.h"
#include "reports/gate/judgement.h"

namespace halfmark::bench {

struct AbOptions {
  std::vector<std::string> selection;  // words and options for `run`, which choose the cases
  DecisionRules rules;
  double seconds = 0.05;       // of timed steps in each process run
  int threads = 0;             // of the CPU's kernels, 0: all; fewer are quieter on a machine with other work
  double timeout = 60;         // for one case in one process
  uint64_t seed = 0;           // of the orders; the data have seed 0 in both builds
  bool side_by_side = true;    // see PairOptions
  std::optional<Noise> noise;  // what is known of the cases' noise
  std::function<void(const std::string& doing, const PairProgress& progress)> progress = [](const auto&, const auto&) {
  };
};

// The times. Cases that only one build has, or that one cannot measure, are lines too. Throws Error when a build cannot
// be asked or nothing is left to compare.
Judgement compare_times(const Build& a, const Build& b, const AbOptions& options);

// Rules for `noise`: the same build on both sides, every case confirmed. What was learned is added to `noise`.
void learn_noise(const Build& build, const AbOptions& options, Noise& noise);

}  // namespace halfmark::bench
