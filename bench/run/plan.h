// Builds the plan, the list of cases to run, from a suite and the words of a command line.
#pragma once

#include <vector>

#include "bench/run/case.h"
#include "bench/run/selection.h"

namespace halfmark::bench {

// The cases in the order in which they run: one subject after another, so that its policies share their fp64
// references. Throws Error, with the nearest names, for an unknown name and for an empty selection.
std::vector<Case> plan(const Selection& selection);

std::vector<Case> in_running_order(std::vector<Case> cases);

}  // namespace halfmark::bench
