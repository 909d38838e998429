// The output of `halfmark show --layers`: which tensors of which layers lose values in each precision.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// Reads the records of the harness `range` (and the errors of `error` for the same tensors). For each subject and
// device: one row per policy and tensor that loses something, worst first. With options.all every tensor. Throws
// ReportError if the report has no such record.
std::string show_layers(const NamedReport& named, const TextOptions& options = {});

// For each subject with several layers and its device: a table of the tensors that lose most, and the command that shows
// all of them. Nothing for those that lose nothing, or that have no record of the harness `range`.
std::map<std::pair<std::string, std::string>, std::string> worst_layers(const NamedReport& named,
                                                                        const TextOptions& options = {});

// The explanation of its columns: part of `halfmark show --help`.
std::string layer_columns_text();

}  // namespace halfmark::reports
