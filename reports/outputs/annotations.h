// A judgement as GitHub workflow commands: what failed shows on the run's page and beside the pull request.
#pragma once

#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// Lines to print on standard output: errors for what broke, warnings for what wants a look, worst first. GitHub shows
// ten of each kind in a step and drops the rest, so there are five at most; of more findings the fifth says how many.
std::string annotations_of(const Judgement& judgement);

}  // namespace halfmark::reports
