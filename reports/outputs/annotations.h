// A judgement as GitHub workflow commands: failures are shown on the page of the run and in the pull request.
#pragma once

#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// Lines to print on standard output: errors for failures, warnings for what needs review, worst first. GitHub shows ten
// of each kind per step and drops the rest. There are five at most; if there are more findings, the fifth counts them.
std::string annotations_of(const Judgement& judgement);

}  // namespace halfmark::reports
