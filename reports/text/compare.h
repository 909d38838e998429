// The output of `halfmark show` and `halfmark compare`. Plain text; the columns depend on the metrics in the report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// Summary, a table of precisions for each subject, best first, then notices. With options.all every record, measurement
// and curve follows.
std::string show(const NamedReport& report, const TextOptions& options = {});

// The explanation of the columns, one line for each: part of `halfmark show --help`.
std::string columns_text();

// One report: the precisions beside fp32, with ratios. Several: the machines side by side, ratios to the first.
std::string compare(const std::vector<NamedReport>& reports, const TextOptions& options = {});

// "holds 12 of 62 cases: ..." for a partial report, and for one whose cases are not as many as its run had; else empty.
std::string partial_text(const Report& report);

// Notices: unmet expectations, failures, non-finite tensors, broken bounds, updates that change nothing. Worst first,
// one per case and kind.
std::vector<std::string> worth_noticing(const Report& report);

}  // namespace halfmark::reports
