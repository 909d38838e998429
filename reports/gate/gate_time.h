// Judges the times of two reports if they are comparable: same machine, and medians
// of many processes on each side. Stored times cannot separate a change of the code
// from drift between days, so the minimum effect is large. `ab` measures in pairs.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/gate/time_history.h"
#include "reports/text/compare.h"

namespace halfmark::reports {

using MeasuredPair = std::pair<const Record*, const Record*>;  // base, found

// Adds a line for each pair that has times, and the decision of statistics/stored_times.h: three tests, against the
// variation of the runs, their dependence on each other and the shift between days. A case that cannot be judged is
// inconclusive, unless its times were suspect in the base already; if none is judged, all are. Returns the ids of the
// judged cases. `history`: gives the shift between days where it has enough days; the rule gives it elsewhere. Throws
// ReportError for rules that could not find anything.
std::set<std::string> judge_times(const std::vector<MeasuredPair>& pairs, const TimeRule& rule, const Keys& keys,
                                  const TimeHistory& history, EnvironmentDifference& environment, Judgement& judgement);

// Throws ReportError if the time of a step or process is invalid: NaN, infinite, zero or negative.
void check_times(const NamedReport& report);

}  // namespace halfmark::reports
