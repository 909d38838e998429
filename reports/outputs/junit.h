// A judgement as JUnit XML, for GitLab, Jenkins and other viewers of test results.
#pragma once

#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// One test case for each question that was judged for a case: perf, memory, accuracy, presence. A broken rule is a
// failure, a missing case an error, an undecided one is skipped; each with its text.
std::string junit_of(const Judgement& judgement);

}  // namespace halfmark::reports
