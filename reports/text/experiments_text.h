// Tables of experiments that `halfmark show` prints below those of the subjects.
#pragma once

#include <string>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// The entries of autocast's lists by verdict, trainings with few fraction bits, weights in int8 beside half, conclusions of seeds.
// Each part is left out if the report has no record of it.
std::string experiments_text(const Report& report, const TextOptions& options);

}  // namespace halfmark::reports
