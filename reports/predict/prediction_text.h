// Predictions as text, below the measurements of `halfmark compare`.
#pragma once

#include <string>
#include <vector>

#include "reports/predict/prediction.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// A table for each subject, in which every row is marked, then what the rows rest on, and why others have none.
std::string predictions_text(const Predictions& predictions, const TextOptions& options);

}  // namespace halfmark::reports
