#include "reports/statistics/stored_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "reports/statistics/dependence.h"

namespace halfmark::reports {

namespace {

// One-sided level at which a dependence is taken to be there, and probability that its upper bound is too low.
// Independent runs that seem dependent by chance cost power only. At 24 runs on both sides, a dependence of 0.9 is seen
// practically always, one of 0.5 in nine of ten cases; what remains unseen widens an error by less than two.
constexpr double kSeemsDependent = 0.05, kBoundTooLow = 0.05;

// Share of alpha at which the shift between days is tested: its simulated rate is then below alpha with confidence.
constexpr double kShareOfDays = 0.5;

struct DependenceOfCase {
  double bound = 0;  // upper bound if it seems to be there, else 0
  double estimate = 0;
  bool evident = false;  // at the level of the whole comparison
};

// The causes of dependence are those of the machine, so a case has at least the dependence that all cases have together.
std::vector<DependenceOfCase> dependence_in(std::span<const StoredTimes> cases, double alpha) {
  std::vector<Dependence> all;
  for (const StoredTimes& one : cases) {
    const std::array both{one.base, one.found};
    all.push_back(dependence_of(both));
  }
  const Dependence common = common_dependence(all);
  std::vector<DependenceOfCase> found;
  for (const Dependence& one : all) {
    DependenceOfCase of_case;
    if (common.is_evident(kSeemsDependent) || one.is_evident(kSeemsDependent))
      of_case.bound = std::max({0.0, one.upper(kBoundTooLow), common.upper(kBoundTooLow)});
    of_case.estimate = std::max({0.0, one.lag_one, common.lag_one});
    of_case.evident = common.is_evident(alpha) || one.is_evident(alpha / static_cast<double>(all.size()));
    found.push_back(of_case);
  }
  return found;
}

// The p values of the three tests in one direction: +1 slower, -1 faster.
struct Tests {
  std::vector<double> runs, dependent, days;
};

Tests tests_of(std::span<const StoredTimes> cases, std::span<const DependentShift> errors,
               std::span<const StoredFinding> findings, const StoredRules& rules, double sign) {
  Tests tests;
  const double margin = std::log1p(rules.margin);
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<double>&low = sign > 0 ? cases[i].base : cases[i].found,
          &high = sign > 0 ? cases[i].found : cases[i].base;
    const double shift = sign * findings[i].shift;
    tests.runs.push_back(rank_sum_p(low, high, margin));
    tests.dependent.push_back(findings[i].lag_one > 0 ? errors[i].p(shift, margin, 0) : tests.runs.back());
    const double days = spread_between_two(findings[i].day_spread);
    tests.days.push_back(days > 0 ? errors[i].p(shift, 0, days) : 0.0);
  }
  return tests;
}

}  // namespace

std::vector<StoredFinding> judge_stored_times(std::span<const StoredTimes> cases, const StoredRules& rules) {
  std::vector<StoredFinding> findings(cases.size());
  std::vector<DependentShift> errors;
  const std::vector<DependenceOfCase> dependence = dependence_in(cases, rules.alpha);
  for (size_t i = 0; i < cases.size(); ++i) {
    StoredFinding& one = findings[i];
    one.shift = shift_between(cases[i].base, cases[i].found);
    one.lag_one = dependence[i].bound;
    one.day_spread = cases[i].day_spread.value_or(rules.day_spread);
    errors.push_back(dependent_shift(cases[i].base, cases[i].found, one.lag_one));
    one.worth = errors[i].worth;
    const Interval of_runs = shift_interval(cases[i].base, cases[i].found);
    const double reach = errors[i].reach(0.95, spread_between_two(one.day_spread));
    one.interval = {std::min(of_runs.lower, one.shift - reach), std::max(of_runs.upper, one.shift + reach)};
  }
  const double minimum_effect = std::log1p(rules.minimum_effect);
  for (const double sign : {+1.0, -1.0}) {
    const Tests tests = tests_of(cases, errors, findings, rules, sign);
    const std::vector<double> runs = holm(tests.runs), dependent = holm(tests.dependent), days = holm(tests.days);
    for (size_t i = 0; i < cases.size(); ++i) {
      StoredFinding& one = findings[i];
      if ((one.shift < 0) != (sign < 0)) continue;
      one.p = tests.runs[i], one.corrected_p = runs[i];
      one.corrected_dependent_p = dependent[i], one.corrected_day_p = days[i];
      if (std::fabs(one.shift) >= minimum_effect) {
        if (runs[i] > rules.alpha)
          one.verdict = StoredVerdict::noise;
        else if (dependent[i] > rules.alpha)
          one.verdict = StoredVerdict::dependence;
        else if (days[i] > kShareOfDays * rules.alpha)
          one.verdict = StoredVerdict::days;
        else
          one.verdict = sign > 0 ? StoredVerdict::slower : StoredVerdict::faster;
      } else if (dependence[i].evident &&
                 dependent_shift(cases[i].base, cases[i].found, dependence[i].estimate).upper(one.shift) >=
                     minimum_effect) {
        one.verdict = StoredVerdict::unknown;
      }
    }
  }
  return findings;
}

}  // namespace halfmark::reports
