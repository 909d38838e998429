// How the suites and the words of a command line become a plan: the list of the cases to run.
#pragma once

#include <string>
#include <vector>

#include "bench/run/case.h"

namespace halfmark::bench {

// What a command line asks for. Lists that are empty leave the choice to the suite; the device is then the best one
// present.
struct Selection {
  std::string suite = "quick";
  std::vector<std::string> devices, policies, harnesses;
  std::vector<std::string> words;  // parts of ids: alternatives within one part, all parts must hold
};

// The cases, in the order they are run: one subject after another, so that its policies share their fp64 twins. Throws
// Error for a name nobody knows and for a selection that leaves nothing, with the nearest names.
std::vector<Case> plan(const Selection& selection);

}  // namespace halfmark::bench
