// Times of two reports, where they can be judged at all: on one machine, from medians of many processes on each side.
// Stored times cannot tell a change of the code from one of the day, so that the floor is high; `ab` measures in pairs.
#pragma once

#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/text/compare.h"

namespace halfmark::reports {

using RecordPair = std::pair<const Record*, const Record*>;  // base, found

// Adds a line about the time of each pair that has times, and the decision behind them. Mann and Whitney's test of the
// logarithms against the margin, corrected by Holm's method over all cases judged; the estimate must lie above the
// floor. Throws ReportError about rules that could not find anything.
void judge_times(const std::vector<RecordPair>& pairs, const TimeRule& rule, const Keys& keys,
                 EnvironmentDifference& environment, Judgement& judgement);

// Throws ReportError about a time of a step or process that is none: NaN, infinite, zero or negative.
void check_times(const NamedReport& report);

}  // namespace halfmark::reports
