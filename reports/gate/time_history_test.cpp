// Tests of what earlier reports of a machine say about its times, and of `gate --time` that uses it.
#include "reports/gate/time_history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports::gate_test {
namespace {

// A machine on which each case shifts from day to day by a normal amount of this standard deviation.
class SimulatedMachine {
 public:
  SimulatedMachine(double day_spread, int cases, uint64_t seed)
      : day_spread_(day_spread), cases_(cases), random_(seed) {}

  // A report of a new day; each of the cases is slower by `factor`.
  Report next_day(double factor = 1, int processes = 24) {
    Report report = made_report();
    report.run.started = fmt::format("2026-{:02}-{:02}T03:00:00Z", 1 + day_ / 28, 1 + day_ % 28);
    ++day_;
    report.records.clear();
    for (int i = 0; i < cases_; ++i) {
      const double shift = std::normal_distribution<double>(0, 1)(random_) * day_spread_;
      report.records.push_back(timed_record(fmt::format("linear/b4_i16_o8/cpu/fp16/throughput/n={}", i),
                                            factor * std::exp(shift), processes, random_()));
    }
    return report;
  }

  TimeHistory history(int days, const Report& base) {
    TimeHistory all;
    for (int i = 0; i < days; ++i) all.add(next_day(), base, load_gate_rules("default").time_keys);
    return all;
  }

 private:
  double day_spread_;
  int cases_, day_ = 0;
  std::mt19937_64 random_;
};

const Measurement& process_time(const Report& report) { return report.records[0].measurements[0]; }

TEST(SlowTimeHistory, BoundsTheShiftBetweenDaysFromAbove) {
  int too_low = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SimulatedMachine machine(0.03, 1, seed);
    const Report base = machine.next_day();
    const TimeHistory history = machine.history(20, base);
    const auto bound = history.day_spread(base.records[0].id, process_time(base));
    ASSERT_TRUE(bound);
    too_low += *bound < 0.03;
    EXPECT_LT(*bound, 0.09);
  }
  EXPECT_LE(too_low, 6);  // 2 expected; more than 6 have a probability below 0.5 %
}

TEST(TimeHistory, SaysNothingOfDaysWithFewerThanTen) {
  SimulatedMachine machine(0.03, 1, 1);
  const Report base = machine.next_day();
  EXPECT_FALSE(machine.history(9, base).day_spread(base.records[0].id, process_time(base)));
  EXPECT_TRUE(machine.history(10, base).day_spread(base.records[0].id, process_time(base)));
}

TEST(TimeHistory, CountsManyRunsOfOneDayOnce) {
  SimulatedMachine machine(0.03, 1, 1);
  const Report base = machine.next_day();
  TimeHistory history;
  for (int i = 0; i < 20; ++i) {
    Report run = machine.next_day();
    run.run.started = fmt::format("2026-03-01T{:02}:00:00Z", i);
    history.add(run, base, load_gate_rules("default").time_keys);
  }
  EXPECT_EQ(history.runs(), 20u);
  EXPECT_EQ(history.days(), 1u);
  EXPECT_FALSE(history.day_spread(base.records[0].id, process_time(base)));
}

TEST(TimeHistory, GivesACaseAtLeastTheShiftOfAllCasesTogether) {
  SimulatedMachine machine(0.03, 30, 1);
  const Report base = machine.next_day();
  const TimeHistory history = machine.history(20, base);
  for (const Record& record : base.records)
    EXPECT_GT(*history.day_spread(record.id, process_time(base)), 0.03) << record.id;
}

int exit_code(const Report& base, const Report& found, const TimeHistory& history) {
  return gate(base, found, {.time = true, .time_history = history}).exit_code;
}

TEST(TimeHistory, LetsTheGateFindWhatAShiftBetweenDaysWouldExplainElsewhere) {
  SimulatedMachine steady(0.001, 20, 1);
  const Report base = steady.next_day(), slower = steady.next_day(1.12);
  const TimeHistory history = steady.history(20, base);
  EXPECT_EQ(exit_code(base, slower, {}), 3);
  EXPECT_EQ(exit_code(base, slower, history), 1);
  EXPECT_EQ(exit_code(base, steady.next_day(), history), 0);
  EXPECT_SAYS(all_words(gate(base, slower, {.time = true, .time_history = history})),
              "the shift of times between days comes from the history for 20 of 20 cases (20 days; 10 are needed)");
  SimulatedMachine restless(0.08, 20, 1);
  const TimeHistory wild = restless.history(20, base);
  EXPECT_EQ(exit_code(base, steady.next_day(1.2), {}), 1);
  EXPECT_EQ(exit_code(base, steady.next_day(1.2), wild), 3);
}

TEST(SlowTimeHistory, KeepsTheRateOfFalseAlarms) {
  int alarms = 0, alarms_without_days = 0;
  constexpr int kComparisons = 60;
  for (uint64_t seed = 0; seed < kComparisons; ++seed) {
    SimulatedMachine machine(0.04, 20, seed);
    const Report base = machine.next_day(), found = machine.next_day();
    const TimeHistory history = machine.history(20, base);
    alarms += exit_code(base, found, history) == 1;
    SimulatedMachine same_day(0, 20, seed);
    alarms_without_days += exit_code(base, found, same_day.history(20, base)) == 1;
  }
  EXPECT_LE(alarms, 3);  // 0.6 expected at 1 %; more than 3 have a probability below 0.4 %
  EXPECT_GE(alarms_without_days, 20)
      << "without the shift between days this noise raises alarms; else it shows nothing";
}

}  // namespace
}  // namespace halfmark::reports::gate_test
