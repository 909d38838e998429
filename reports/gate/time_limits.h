// Compares the times stored in two reports, for every call of the gate: a difference that no plausible noise explains
// is SUSPECTED. Two runs cannot decide about smaller ones; the remarks say how many times were not judged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/gate_time.h"
#include "reports/gate/judgement.h"
#include "reports/gate/time_history.h"

namespace halfmark::reports {

// How far two stored times of unchanged code may be apart. Lengths are logarithms of ratios; the limit of one number is
//   run_shift + process_spread + interval of the base + interval of the new report
// and no limit is below `least`. All are wide on purpose: a stored time raises a question, `halfmark ab` answers it.
struct StoredTimeRule {
  // All times of a run shift by up to 5 % from run to run, on an idle machine too: ln(1.05 / 0.95) between two runs.
  double run_shift = 0.1001;
  // Each process places its memory anew. Equal kernel lists timed on an idle machine gave 0.68x to 1.21x: -ln 0.68.
  // With 6 or more processes on both sides, their own range replaces it.
  double process_spread = 0.3857;
  // The half-width of a time without 6 samples. A record with a wider interval is suspect (bench/run/timing.h).
  double widest_interval = 0.0953;
  double least = 0.2231;  // ln 1.25: twice the least effect of --time, which has 24 processes on each side (10 %)
  double widening = 2;    // a history, or the scatter of the new report, makes a limit at most so many times as wide
  // All times moved together: the median over this many cases, against run_shift and its own uncertainty.
  size_t common_cases = 5;
  double common_deviations = 4;  // standard errors of the median: 6e-5 for normal scatter
};

// The largest logarithm of a ratio of these two numbers that noise explains. A history of the machine replaces the rest.
double noise_limit(const StoredTimeRule& rule, const Record& base, const Record& found, const Measurement& before,
                   const Measurement& after, const TimeHistory& history = {});

// Adds a line for each case whose times differ beyond the limit or are missing, one for a common shift, and remarks on
// what was not judged. `tested`: the ids whose step times the test of --time has judged.
void compare_stored_times(const std::vector<MeasuredPair>& pairs, const StoredTimeRule& rule, const GateRules& rules,
                          const TimeHistory& history, const std::set<std::string>& tested,
                          EnvironmentDifference& environment, Judgement& judgement);

// "halfmark ab BASE_BUILD NEW_BUILD linear/b64_i1024_o1024 --policy fp16 --device cpu": judges the times of this case.
std::string deciding_command(const Record& record);

}  // namespace halfmark::reports
