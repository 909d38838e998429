// Judges the stored times of two reports, for many cases at once: medians of process runs, measured at two different
// times on one machine. Three kinds of noise stand between the two: the runs of a report vary, each run depends on the
// run before it, and every case shifts from day to day. A case is called slower only if none of the three explains it.
//
// 1. Runs: Mann and Whitney against the margin, exact for independent runs.
// 2. Dependence: a t-test against the margin, with the standard error and degrees of freedom of the independent runs
//    that the measured ones are worth (dependence.h). The dependence is an upper bound: of the case itself or of all
//    cases of the machine, whichever is larger.
// 3. Days: the shift against the standard error and the spread between two days. No number of runs makes it smaller.
//
// Each test has Holm's correction over all cases, and the estimate must reach the minimum effect. Test 3 alone limits
// the false alarms of a comparison to alpha, as long as the shifts between days are normal and of the given spread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reports/statistics/noise_facts.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports {

// ln(s) of one case, in the order of measurement.
struct StoredTimes {
  std::vector<double> base, found;
  std::optional<double> day_spread{};  // of this case, where the history of the machine shows it
};

struct StoredRules {
  double margin = 0.05, minimum_effect = 0.10, alpha = 0.01;
  double day_spread = kDaySpread;  // standard deviation of the shift of a case on one day, where it is unknown
};

// noise, dependence, days: an effect of at least the minimum, which this kind of noise may explain. unknown: the runs
// depend on each other, so that an effect of the minimum may be there and not be seen.
enum class StoredVerdict : uint8_t { no_effect, slower, faster, noise, dependence, days, unknown };

struct StoredFinding {
  StoredVerdict verdict = StoredVerdict::no_effect;
  double shift = 0;               // ln ratio: Hodges and Lehmann
  Interval interval{0, 0};        // 95 % interval of the shift of the code: all three kinds of noise are in it
  double p = 1, corrected_p = 1;  // test 1, of the direction of the shift
  double corrected_dependent_p = 1, corrected_day_p = 1;  // tests 2 and 3
  double lag_one = 0;                                     // the dependence used: an upper bound
  double day_spread = 0;                                  // used
  double worth = 0;                                       // independent runs that the shorter side is worth
};

std::vector<StoredFinding> judge_stored_times(std::span<const StoredTimes> cases, const StoredRules& rules);

}  // namespace halfmark::reports
