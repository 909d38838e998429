// Compares the times of two builds on one machine: which cases became slower, from pairs of process runs.
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
  std::vector<std::string> models;     // files of models that both builds read
  std::string data{};                  // files in place of drawn data; empty: drawn
  DecisionRules rules;
  double seconds = 0.05;     // duration of the timed steps per process run
  int threads = 0;           // of the CPU's kernels, 0: all; fewer give less noise on a machine with other work
  double timeout = 60;       // seconds for one case in one process
  uint64_t seed = 0;         // of the pair orders; the data have seed 0 in both builds
  bool side_by_side = true;  // see PairOptions
  // All layouts of each build, if it was linked several times; the first ones are the builds that are compared. Both
  // have the same number, or none.
  std::vector<Build> layouts_a{}, layouts_b{};
  std::optional<NoiseProfile> noise;  // known noise of the cases
  std::function<void(const std::string& doing, const PairProgress& progress)> progress = [](const auto&, const auto&) {
  };
};

// Compares the times. Cases that only one build has, or that a build cannot measure, also get a line. Throws Error when
// a build cannot be run or nothing is left to compare.
Judgement compare_times(const Build& a, const Build& b, const AbOptions& options);

// Measures the noise: the same build on both sides, confirm_pairs pairs of every case. Adds the result to `noise`.
void learn_noise(const Build& build, const AbOptions& options, NoiseProfile& noise);

}  // namespace halfmark::bench
