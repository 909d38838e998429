// Selects records of a report by words, as `halfmark run` selects cases: `halfmark show report.json convnet fp16`.
#pragma once

#include <string>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// Keeps the records that the words match. A word matches a whole part of the id or a key=value, with * as a glob; words
// for the same part are alternatives, words for different parts must all match. Throws ReportError for a word that
// matches no record, and if no record matches all words.
void select_records(NamedReport& named, const std::vector<std::string>& words);

}  // namespace halfmark::reports
