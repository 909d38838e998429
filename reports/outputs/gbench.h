// The times of a report in Google Benchmark's JSON, and its errors and bytes as the plain list that dashboards take:
// their tools draw histories of our numbers without knowing us.
#pragma once

#include <string>

#include "reports/record/report.h"

namespace halfmark::reports {

// A row for each hot time of each ok record: the median of its samples, in nanoseconds. Samples of one process share
// its clock and memory, so they are not written as repetitions, of which tests would make far too much. Times that
// mean nothing are left out and counted in the context.
std::string gbench_of(const Report& report);

// [{name, value, unit}]: github-action-benchmark's customSmallerIsBetter. The telling errors and bytes, lower is
// better for every one; what is not finite is left out, no dashboard could draw it.
std::string smaller_is_better_of(const Report& report);

}  // namespace halfmark::reports
