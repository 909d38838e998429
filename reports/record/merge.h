// Merges the reports of all shards of one run into one report.
#pragma once

#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// Records in the order of the plan. All must have the same suite, seed, plan, build and devices, and every shard must
// be given once and be complete; otherwise throws ReportError, one line with the files and the difference. With
// `partial`, shards may be missing or incomplete, and the result is marked as partial. The records of an incomplete
// shard count as those of its first cases.
Report merge(const std::vector<NamedReport>& shards, bool partial);

}  // namespace halfmark::reports
