// A judgement as JUnit XML, for GitLab, Jenkins and whatever else shows test results.
#pragma once

#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// One test case for each of perf, memory, accuracy and presence that was asked of a case. What broke a rule is a
// failure, a case that is gone an error, what could not be decided is skipped; each with its words.
std::string junit_of(const Judgement& judgement);

}  // namespace halfmark::reports
