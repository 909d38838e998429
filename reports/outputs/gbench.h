// The times of a report in Google Benchmark's JSON, and its errors and bytes as the plain list that dashboards read.
// Tools for these formats can draw histories of our numbers.
#pragma once

#include <string>

#include "reports/record/report.h"

namespace halfmark::reports {

// A row for each hot time of each ok record: the median of its samples, in nanoseconds. Samples of one process share
// its clock speed and memory placement. They are not written as repetitions, because significance tests would take them
// for replicates. Suspect times are left out and counted in the context.
std::string gbench_of(const Report& report);

// [{name, value, unit}]: github-action-benchmark's customSmallerIsBetter. The most informative errors and bytes, for
// all of which lower is better. Numbers that are not finite are left out, because no dashboard could draw them.
std::string smaller_is_better_of(const Report& report);

}  // namespace halfmark::reports
