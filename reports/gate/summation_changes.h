// Matmuls that add in another way than in the base, counted over all sizes: a new version of a library often changes many
// sizes at once, and a line for each of them would hide that it is one change.
#pragma once

#include <string>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// From the records of the harness `summation` that both reports have. One remark for each kind of change:
// "14 sizes now add in 4 partial sums, not in 1: linear/b32_i64_o32/cuda:0/fp16 and 13 more".
std::vector<std::string> summation_changes(const Report& base, const Report& found);

}  // namespace halfmark::reports
