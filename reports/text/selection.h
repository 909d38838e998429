// Records of a report chosen by words, as `halfmark run` chooses cases: `halfmark show report.json convnet fp16`.
#pragma once

#include <string>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// Keeps the records that the words match. A word matches a whole part of the id or a key=value, with * as a glob; words
// about the same part are alternatives, words about different parts must all hold. Throws ReportError for a word that
// matches no record, and where no record matches all of them.
void select_records(NamedReport& named, const std::vector<std::string>& words);

}  // namespace halfmark::reports
