// Changes of level in series that drift or have a memory: none may be called a change if nothing changed, and real steps
// must be listed as before. HALFMARK_LONG=1 runs the full simulation.
#include "reports/statistics/changes_in_noise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "reports/record/folder_testing.h"
#include "reports/statistics/noise_testing.h"

namespace halfmark::reports {
namespace {

std::vector<int64_t> one_a_day(size_t points, int64_t a_day = 1) {
  std::vector<int64_t> days(points);
  for (size_t i = 0; i < points; ++i) days[i] = static_cast<int64_t>(i) / a_day;
  return days;
}

// What is made of a series.
struct Reading {
  bool changed = false, listed = false;  // any decided change; any change, decided or not
};

Reading read_series(const std::vector<double>& series, const std::vector<int64_t>& days) {
  Reading reading;
  for (const ChangePoint& one : changes_in_noise(series, days)) {
    reading.listed = true;
    reading.changed = reading.changed || !one.undecided;
  }
  return reading;
}

struct SeriesTally {
  int runs = 0, changed = 0, listed = 0;
};

// Series of `a_day` points a day, with a step of `effect` after two thirds of the points.
SeriesTally read_many(const SimulatedNoise& noise, size_t points, int runs, int a_day = 1, double effect = 0) {
  SeriesTally tally;
  for (tally.runs = 0; tally.runs < runs; ++tally.runs) {
    SimulatedRuns machine(noise, static_cast<uint64_t>(tally.runs) + 1);
    std::vector<double> series;
    for (size_t i = 0; i < points; ++i) {
      if (a_day > 1 && i % static_cast<size_t>(a_day) == 0) machine.next_day();
      series.push_back(machine.next() + (i >= points * 2 / 3 ? std::log1p(effect) : 0));
    }
    const Reading reading = read_series(series, one_a_day(points, a_day));
    tally.changed += reading.changed, tally.listed += reading.listed;
  }
  return tally;
}

// The noise of stored times, night by night.
struct SeriesNoise {
  SimulatedNoise noise;
  int a_day = 1;
};

std::vector<SeriesNoise> noises_of_series() {
  constexpr double kPercent = 0.01;
  return {{{.name = "independent, 1 %", .spread = kPercent}},
          {{.name = "two clocks", .spread = kPercent, .slow_clock = 0.2}},
          {{.name = "AR(1) 0.5", .spread = kPercent, .lag_one = 0.5}},
          {{.name = "AR(1) 0.8", .spread = kPercent, .lag_one = 0.8}},
          {{.name = "AR(1) 0.8, 3 %", .spread = 3 * kPercent, .lag_one = 0.8}},
          {{.name = "AR(1) 0.9", .spread = kPercent, .lag_one = 0.9}},
          {{.name = "AR(1) 0.9, 3 %", .spread = 3 * kPercent, .lag_one = 0.9}},
          {{.name = "linear drift 0.1 %", .spread = kPercent, .trend = 0.001}},
          {{.name = "linear drift 1 %", .spread = kPercent, .trend = 0.01}},
          {{.name = "random walk 0.3 %", .spread = kPercent, .walk = 0.003}},
          {{.name = "random walk 1 %", .spread = kPercent, .walk = 0.01}},
          {{.name = "day shifts 3 %, 4 points a day", .spread = kProcessSpread, .day = kDaySpread}, 4}};
}

TEST(ChangesInNoise, AreRarelyDecidedIfNothingChanged) {
  for (const auto& [noise, a_day] : noises_of_series()) {
    const SeriesTally tally = read_many(noise, 60, 60, a_day);
    EXPECT_LE(tally.changed, 1) << noise.name;
    EXPECT_GE(tally.listed, noise.name == "AR(1) 0.9, 3 %" ? 45 : 0) << "else the noise shows nothing";
  }
}

TEST(ChangesInNoise, ListEveryStepAsBefore) {
  for (const double effect : {0.02, 0.03, 0.05, 0.1}) {
    int before = 0;
    for (int run = 0; run < 50; ++run) {
      SimulatedRuns machine({.spread = 0.01}, static_cast<uint64_t>(run) + 1);
      std::vector<double> series = machine.next(60);
      for (size_t i = 40; i < 60; ++i) series[i] += std::log1p(effect);
      before += !change_points(series).empty();
    }
    const SeriesTally tally = read_many({.spread = 0.01}, 60, 50, 1, effect);
    EXPECT_EQ(tally.listed, before) << effect;
    EXPECT_GE(tally.changed, effect < 0.05 ? 0 : 45) << effect;
  }
}

TEST(ChangesInNoise, DecideTwoOppositeSteps) {
  SimulatedRuns machine({.spread = 0.003}, 1);
  std::vector<double> series = machine.next(300);
  for (size_t i = 140; i < 165; ++i) series[i] += 0.05;
  const std::vector<ChangePoint> changes = changes_in_noise(series, one_a_day(300));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].at, 140u);
  EXPECT_EQ(changes[1].at, 165u);
  for (const ChangePoint& one : changes) EXPECT_FALSE(one.undecided);
}

TEST(ChangesInNoise, AreDecidedWithoutNoiseAfterThreePoints) {
  const std::vector<double> series{0, 0, 0, 0.1, 0.1, 0.1};
  const std::vector<ChangePoint> changes = changes_in_noise(series, one_a_day(6));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].undecided);
}

// Two days with six points each are two values, in which no change can be found.
TEST(ChangesInNoise, CountThePointsOfADayAsOne) {
  std::vector<double> series(12, 0.0);
  std::fill(series.begin() + 6, series.end(), 0.1);
  EXPECT_TRUE(changes_in_noise(series, one_a_day(12, 6)).empty());
  std::vector<double> longer(24, 0.0);
  std::fill(longer.begin() + 12, longer.end(), 0.1);
  const std::vector<ChangePoint> changes = changes_in_noise(longer, one_a_day(24, 2));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].at, 12u) << "an index of a point, not of a day";
}

TEST(ChangesInNoise, RefuseAPointWithoutADay) {
  const std::vector<double> series{0, 0, 0};
  EXPECT_SAYS(complaint([&] { changes_in_noise(series, one_a_day(2)); }), "has no day");
}

TEST(ExactChanges, AreAllListed) {
  const std::vector<double> series{0, 0, 1e-9, 1e-9, 0};
  const std::vector<ChangePoint> changes = exact_changes(series);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].at, 2u);
  EXPECT_EQ(changes[1].at, 4u);
  EXPECT_EQ(changes[1].change(), -1e-9);
  EXPECT_TRUE(exact_changes({}).empty());
}

// The promise: with 95 % confidence, at most 1 % of unchanged series are called changed. 20 of 3000 may be.
class SlowChangePointsInNoise : public testing::TestWithParam<SeriesNoise> {};

TEST_P(SlowChangePointsInNoise, AreRarelyDecidedIfNothingChanged) {
  const auto& [noise, a_day] = GetParam();
  const bool full = simulates_in_full();
  std::string row = fmt::format("| {} |", noise.name);
  for (const size_t points : {20, 60, 200}) {
    const int runs = full ? 3000 : 200;
    const SeriesTally tally = read_many(noise, points, runs, a_day);
    if (full)
      EXPECT_LE(rate_bound(tally.changed, runs), 0.01) << points << " points: " << tally.changed << " of " << runs;
    else
      EXPECT_LE(tally.changed, 6) << points << " points";
    row += fmt::format(" {} of {} ({:.0f} %) |", tally.changed, runs, 100.0 * tally.listed / runs);
  }
  for (const double effect : {0.02, 0.03, 0.05, 0.10, 0.20}) {
    const SeriesTally tally = read_many(noise, 60, full ? 400 : 20, a_day, effect);
    row += fmt::format(" {:.0f} ({:.0f}) |", 100.0 * tally.changed / tally.runs, 100.0 * tally.listed / tally.runs);
  }
  fmt::print("{}\n", row);
}

INSTANTIATE_TEST_SUITE_P(Each, SlowChangePointsInNoise, testing::ValuesIn(noises_of_series()),
                         [](const auto& noise) { return std::to_string(noise.index); });

}  // namespace
}  // namespace halfmark::reports
