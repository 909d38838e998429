// What `halfmark show` and `halfmark compare` print. Plain text; which columns there are follows from the metrics
// found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// Summary, a table of precisions for every subject, best first, then what is worth noticing. With options.all every
// record, measurement and curve follows.
std::string show(const NamedReport& report, const TextOptions& options = {});

// What the columns of these tables say, a line for each: the text of `halfmark show --help`.
std::string columns_text();

// One report: the precisions beside fp32, with ratios. Several: the machines side by side, ratios to the first.
std::string compare(const std::vector<NamedReport>& reports, const TextOptions& options = {});

// "holds 12 of 62 cases: ..." of a partial report, nothing of a complete one.
std::string partial_text(const Report& report);

// Lines about what somebody should know: unmet expectations, failures, non-finite tensors, broken bounds, updates that
// change nothing. Worst first, one a case and kind.
std::vector<std::string> worth_noticing(const Report& report);

}  // namespace halfmark::reports
