// What `halfmark show --layers` prints: which tensors of which layers lose values in each precision.
#pragma once

#include <string>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// From the records of the harness `range` (and the errors of `error` where it measured the same tensor): for each
// subject and device a row for each policy and tensor that loses something, worst first. With options.all every tensor.
// Throws ReportError where the report has no such record.
std::string show_layers(const NamedReport& named, const TextOptions& options = {});

// What its columns say: part of `halfmark show --help`.
std::string layer_columns_text();

}  // namespace halfmark::reports
