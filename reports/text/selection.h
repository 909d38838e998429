// Selects records of a report by words, as `halfmark run` selects cases: `halfmark show report.json convnet fp16`.
#pragma once

#include <string>
#include <vector>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// Keeps the records that the words match. A word matches a whole part of the id or an axis=value, with * as a glob; words
// for the same part or axis are alternatives, words for different ones must all match. A value that a record does not name is
// matched by its word in `defaults`, which are of this program's version, and by axis=default if another record of the same
// harness names the axis. Throws ReportError for a word that matches no record, and if no record matches all words.
void select_records(NamedReport& named, const std::vector<std::string>& words, const DefaultSettings& defaults);

}  // namespace halfmark::reports
