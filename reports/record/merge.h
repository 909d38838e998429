// Reports of the shards of one run become the report of the whole.
#pragma once

#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// Records in the order of the plan. Throws ReportError, one line naming the files and what does not fit, unless all
// are of one suite, seed and plan, made by the same build on the same devices, every shard is there once and complete.
// With `partial` shards may be missing or incomplete; the result then says that it is. Of an incomplete shard the
// records are taken for its first cases.
Report merge(const std::vector<NamedReport>& shards, bool partial);

}  // namespace halfmark::reports
