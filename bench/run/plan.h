// Builds the plan, the list of cases to run, from a suite and the words of a command line.
#pragma once

#include <string>
#include <vector>

#include "bench/run/case.h"
#include "bench/run/policy_change.h"

namespace halfmark::bench {

// The selection of a command line. For an empty list the suite decides; without a device, the best one present is used.
struct Selection {
  std::string suite = "quick";
  std::vector<std::string> devices, policies, harnesses;
  std::vector<std::string> subjects{};       // ids: these only
  std::string subjects_option = "--shapes";  // which has named them
  PolicyChange change{};                     // of the selected cases
  std::vector<std::string> words;            // parts of ids: alternatives within one part, all parts must match
};

// The cases in the order in which they run: one subject after another, so that its policies share their fp64
// references. Throws Error, with the nearest names, for an unknown name and for an empty selection.
std::vector<Case> plan(const Selection& selection);

std::vector<Case> in_running_order(std::vector<Case> cases);

}  // namespace halfmark::bench
