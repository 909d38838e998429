// Tests the judgement of stored times on simulated reports under every kind of noise: false alarms, and what is found of
// planted effects. HALFMARK_LONG=1 runs the full simulation and prints the table of reports/gate/README.md.
#include "reports/statistics/stored_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "reports/statistics/noise_testing.h"

namespace halfmark::reports {
namespace {

struct StoredTally {
  int runs = 0, alarmed = 0, alarmed_by_runs = 0,
      open = 0;                                        // comparisons; those with a false alarm: now, by test 1 only
  double found = 0, found_by_runs = 0, undecided = 0;  // shares of the planted cases
  int planted = 0;
};

constexpr size_t kStoredRuns = 24;  // the smallest number that is judged

// Compares two reports of two days. The first twentieth of the cases, at least one, is slower by `effect`.
StoredTally compare_reports(const SimulatedNoise& noise, size_t cases, int runs, double effect = 0,
                            const StoredRules& rules = {}) {
  StoredTally tally;
  const size_t planted = effect > 0 ? std::max<size_t>(1, cases / 20) : 0;
  const double floor = std::log1p(rules.minimum_effect);
  for (tally.runs = 0; tally.runs < runs; ++tally.runs) {
    std::vector<StoredTimes> times;
    for (size_t i = 0; i < cases; ++i) {
      SimulatedRuns machine(noise, static_cast<uint64_t>(tally.runs) * 1'000'003 + i);
      StoredTimes one{machine.next(kStoredRuns), {}};
      machine.next_day();
      one.found = machine.next(kStoredRuns);
      if (i < planted)
        for (double& x : one.found) x += std::log1p(effect);
      times.push_back(std::move(one));
    }
    const std::vector<StoredFinding> findings = judge_stored_times(times, rules);
    bool alarm = false, by_runs = false, open = false;
    for (size_t i = 0; i < cases; ++i) {
      const StoredFinding& one = findings[i];
      const bool slower = one.verdict == StoredVerdict::slower, beyond = one.shift >= floor;
      const bool undecided = one.verdict == StoredVerdict::unknown || (beyond && !slower);
      if (i < planted) {
        ++tally.planted, tally.found += slower, tally.undecided += undecided;
        tally.found_by_runs += beyond && one.corrected_p <= rules.alpha;
        continue;
      }
      alarm = alarm || slower, open = open || undecided;
      by_runs = by_runs || (beyond && one.corrected_p <= rules.alpha);
    }
    tally.alarmed += alarm, tally.alarmed_by_runs += by_runs, tally.open += open;
  }
  for (double* share : {&tally.found, &tally.found_by_runs, &tally.undecided})
    *share = tally.planted ? *share / tally.planted : 0;
  return tally;
}

const SimulatedNoise& noise_called(const std::string& name) {
  static const std::vector<SimulatedNoise> all = noises_without_a_change();
  for (const SimulatedNoise& one : all)
    if (one.name == name) return one;
  throw std::invalid_argument(name);
}

TEST(SlowStoredTimes, RaiseNoFalseAlarmInNoiseThatRemembers) {
  for (const char* name : {"AR(1) 0.8", "AR(1) 0.9", "random walk", "day shifts, AR(1) 0.9"})
    EXPECT_EQ(compare_reports(noise_called(name), 10, 100).alarmed, 0) << name;
  const StoredTally days = compare_reports(noise_called("day shifts 3 %"), 20, 150);
  EXPECT_LE(days.alarmed, 4);  // 0.75 expected
  EXPECT_GE(days.alarmed_by_runs, 25)
      << "without the test against days, this noise raises alarms; else it shows nothing";
}

TEST(SlowStoredTimes, FindAFifthInIndependentNoise) {
  for (const char* name : {"independent", "outliers", "two clocks"}) {
    const StoredTally tally = compare_reports(noise_called(name), 20, 20, 0.2);
    EXPECT_EQ(tally.found, 1) << name;
    EXPECT_EQ(tally.alarmed, 0) << name;
    EXPECT_EQ(tally.open, 0) << name << ": no unchanged case is undecided";
  }
}

TEST(SlowStoredTimes, LoseNoPowerIfTheMachineHasNoShiftBetweenDays) {
  StoredRules rules;
  rules.day_spread = 0;
  for (const double effect : {0.1, 0.12}) {
    const StoredTally tally = compare_reports(noise_called("independent"), 20, 100, effect, rules);
    EXPECT_GE(tally.found, tally.found_by_runs - 0.02) << effect;
  }
}

TEST(StoredTimes, SayWhichNoiseMayExplainTheEffect) {
  const auto verdict = [](const SimulatedNoise& noise, double effect) {
    SimulatedRuns machine(noise, 5);
    StoredTimes one{machine.next(kStoredRuns), machine.next(kStoredRuns)};
    for (double& x : one.found) x += std::log1p(effect);
    return judge_stored_times({&one, 1}, {})[0];
  };
  EXPECT_EQ(verdict({.spread = 0.01}, 0).verdict, StoredVerdict::no_effect);
  EXPECT_EQ(verdict({.spread = 0.01}, 0.2).verdict, StoredVerdict::slower);
  EXPECT_EQ(verdict({.spread = 0.01}, -0.2).verdict, StoredVerdict::faster);
  EXPECT_EQ(verdict({.spread = 0.001}, 0.105).verdict, StoredVerdict::days);
  EXPECT_EQ(verdict({.spread = 0.5}, 0.2).verdict, StoredVerdict::noise);
  EXPECT_EQ(verdict({.spread = 0.001, .trend = 0.02}, 0.2).verdict, StoredVerdict::dependence);
  EXPECT_EQ(verdict({.spread = 0.001, .trend = 0.02}, -0.4).verdict, StoredVerdict::unknown);
}

TEST(StoredTimes, WidenTheIntervalByEveryNoise) {
  SimulatedRuns machine({.spread = 0.01}, 1), remembering({.spread = 0.01, .lag_one = 0.8}, 1);
  StoredTimes one{machine.next(kStoredRuns), machine.next(kStoredRuns)},
      other{remembering.next(kStoredRuns), remembering.next(kStoredRuns)};
  StoredRules same_day;
  same_day.day_spread = 0;
  const auto width = [](const StoredTimes& times, const StoredRules& rules) {
    const Interval interval = judge_stored_times({&times, 1}, rules)[0].interval;
    return interval.upper - interval.lower;
  };
  EXPECT_LT(width(one, same_day), 0.02);
  EXPECT_GT(width(one, {}), 2 * 1.96 * spread_between_two(kDaySpread));
  EXPECT_GT(width(other, same_day), 2 * width(one, same_day));
}

// One row of the table for each kind of noise. The promise: with 95 % confidence, at most 1 % of the comparisons raise a
// false alarm. The number of runs supports it: of 3000 comparisons, at most 20 may.
class SlowGateTimeInNoise : public testing::TestWithParam<SimulatedNoise> {};

TEST_P(SlowGateTimeInNoise, RaisesFewFalseAlarms) {
  const bool full = simulates_in_full();
  const struct {
    size_t cases;
    int runs;
  } sizes[] = {{1, full ? 3000 : 1000}, {20, full ? 3000 : 300}, {200, full ? 1000 : 30}};
  std::string row = fmt::format("| {} |", GetParam().name);
  for (const auto& [cases, runs] : sizes) {
    const StoredTally tally = compare_reports(GetParam(), cases, runs);
    const double bound = rate_bound(tally.alarmed, runs);
    if (full)
      EXPECT_LE(bound, 0.01) << cases << " cases: " << tally.alarmed << " of " << runs;
    else
      EXPECT_LE(tally.alarmed, 0.005 * runs + 3 * std::sqrt(0.005 * runs)) << cases << " cases of " << runs;
    if (cases == 200)
      row += fmt::format(" {} of {} | {:.0f} % | {:.0f} % |", tally.alarmed, runs, 100.0 * tally.alarmed_by_runs / runs,
                         100.0 * tally.open / runs);
  }
  for (const double effect : {0.02, 0.03, 0.05, 0.10, 0.20}) {
    const StoredTally tally = compare_reports(GetParam(), 20, full ? 400 : 20, effect);
    row +=
        fmt::format(" {:.0f} ({:.0f}; {:.0f}) |", 100 * tally.found, 100 * tally.undecided, 100 * tally.found_by_runs);
  }
  fmt::print("{}\n", row);
}

INSTANTIATE_TEST_SUITE_P(Each, SlowGateTimeInNoise, testing::ValuesIn(noises_without_a_change()),
                         [](const auto& noise) { return std::to_string(noise.index); });

}  // namespace
}  // namespace halfmark::reports
