// Tests the decision of `ab` under noise that remembers, and under the accidental placement of the code of each build:
// false alarms, and what is found of planted effects. HALFMARK_LONG=1 runs the full simulation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/record/error.h"
#include "reports/statistics/decision.h"
#include "reports/statistics/noise_testing.h"

namespace halfmark::reports {
namespace {

// Two builds, each with one or more layouts. The two processes of a pair run one after the other on a machine with
// memory; each stage is another day.
class TwoBuilds final : public PairSource {
 public:
  TwoBuilds(const SimulatedNoise& noise, size_t cases, size_t planted, double effect, size_t layouts, uint64_t seed)
      : planted_(planted), effect_(std::log1p(effect)), source_(seed) {
    for (size_t i = 0; i < cases; ++i) machines_.emplace_back(noise, source_.bits());
    for (std::vector<std::vector<double>>& build : offsets_) {
      const double common = source_.normal(noise.common_layout);
      for (size_t k = 0; k < std::max<size_t>(1, layouts); ++k) {
        build.emplace_back();
        const double shared = layouts > 0 ? source_.normal(noise.common_layout) : common;
        for (size_t i = 0; i < cases; ++i) build.back().push_back(shared + source_.normal(noise.layout));
      }
    }
  }

  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override {
    const std::vector<bool> a_first = balanced_order(pairs, source_.bits());
    std::vector<std::vector<Pair>> found;
    for (const size_t i : cases) {
      machines_[i].next_day();
      found.emplace_back();
      for (size_t pair = 0; pair < a_first.size(); ++pair) {
        const double first = machines_[i].next(), second = machines_[i].next();
        const auto offset = [&](size_t build) { return offsets_[build][pair % offsets_[build].size()][i]; };
        const double slower = i < planted_ ? effect_ : 0;
        found.back().push_back({std::exp((a_first[pair] ? first : second) + offset(0)),
                                std::exp((a_first[pair] ? second : first) + offset(1) + slower)});
      }
    }
    return found;
  }

 private:
  size_t planted_;
  double effect_;
  NoiseSource source_;
  std::vector<SimulatedRuns> machines_;
  std::vector<std::vector<double>> offsets_[2];  // [build][layout][case]
};

struct PairTally {
  int runs = 0, alarmed = 0;
  double found = 0, undecided = 0;  // shares of the planted cases
};

PairTally compare_builds(const SimulatedNoise& noise, const DecisionRules& rules, int runs, size_t cases = 60,
                         size_t planted = 0, double effect = 0) {
  PairTally tally;
  std::vector<JudgedCase> judged(cases);
  for (tally.runs = 0; tally.runs < runs; ++tally.runs) {
    TwoBuilds builds(noise, cases, planted, effect, static_cast<size_t>(rules.layouts),
                     static_cast<uint64_t>(tally.runs) + 1);
    const Decision decision = decide(judged, rules, builds, 1);
    bool alarm = false;
    for (size_t i = 0; i < cases; ++i) {
      const Verdict verdict = decision.cases[i].verdict;
      if (i < planted)
        tally.found += verdict == Verdict::regression, tally.undecided += verdict == Verdict::inconclusive;
      else
        alarm = alarm || verdict == Verdict::regression;
    }
    tally.alarmed += alarm;
  }
  const double all = static_cast<double>(std::max<size_t>(1, planted)) * runs;
  tally.found /= all, tally.undecided /= all;
  return tally;
}

DecisionRules with_placement() {
  DecisionRules rules;
  rules.layout_spread = kLayoutSpread;
  return rules;
}

DecisionRules with_layouts(int layouts = 24) {
  DecisionRules rules;
  rules.layouts = layouts;
  return rules;
}

const SimulatedNoise kOwnOffsets{.name = "layout offsets 2 %, of each case", .layout = kLayoutSpread};
const SimulatedNoise kCommonOffset{.name = "layout offset 2 %, of all cases", .common_layout = kLayoutSpread};

TEST(SlowPlacement, CallsNoPlacementOfCodeARegression) {
  EXPECT_GE(compare_builds(kOwnOffsets, {}, 20).alarmed, 18) << "without the margin, this noise raises alarms";
  EXPECT_LE(compare_builds(kOwnOffsets, with_placement(), 100).alarmed, 2);  // 0.3 expected
  EXPECT_LE(compare_builds(kCommonOffset, with_placement(), 100).alarmed, 2);
  EXPECT_LE(compare_builds(kOwnOffsets, with_layouts(), 60).alarmed, 2);
}

TEST(DecisionInNoise, LeavesAnEffectOfFivePercentUndecidedAndFindsItOverLayouts) {
  const PairTally one = compare_builds({}, with_placement(), 20, 20, 2, 0.05);
  EXPECT_EQ(one.found, 0);
  EXPECT_GE(one.undecided, 0.9);
  EXPECT_GE(compare_builds({}, with_layouts(), 20, 20, 2, 0.05).found, 0.9) << "as many pairs, other layouts";
  EXPECT_GE(compare_builds({}, with_placement(), 20, 20, 2, 0.15).found, 0.9);
}

TEST(DecisionInNoise, FindsASlowDownOfAllCasesThatNoCommonOffsetExplains) {
  EXPECT_EQ(compare_builds({}, with_placement(), 2, 60, 60, 0.05).found, 0);
  EXPECT_GE(compare_builds({}, with_placement(), 2, 60, 60, 0.09).found, 0.9)
      << "each case alone needs 12 %, all together 8 %";
}

TEST(DecisionInNoise, MarksTheCasesThatPlacementMayExplain) {
  std::vector<JudgedCase> cases(2);
  TwoBuilds builds({.spread = 0.005}, 2, 1, 0.05, 0, 1);
  const Decision decision = decide(cases, with_placement(), builds, 1);
  EXPECT_EQ(decision.verdict, Verdict::inconclusive);
  EXPECT_EQ(exit_code_of(decision.verdict), 3);
  EXPECT_TRUE(decision.placement);
  EXPECT_TRUE(decision.cases[0].placement);
  EXPECT_FALSE(decision.cases[1].placement);
  EXPECT_EQ(decision.cases[0].stage, Stage::confirmed) << "more pairs do not help";
  EXPECT_EQ(decision.cases[1].verdict, Verdict::pass);
}

TEST(DecisionInNoise, RefusesTooFewLayouts) {
  std::vector<JudgedCase> cases(300);
  TwoBuilds builds({}, 300, 0, 0, 16, 1);
  try {
    decide(cases, with_layouts(16), builds, 1);
    ADD_FAILURE() << "2^-16 * 300 cases is above 0.003";
  } catch (const ReportError& error) {
    EXPECT_NE(std::string(error.what()).find("300 cases need 17 layouts of each build"), std::string::npos)
        << error.what();
  }
  TwoBuilds others({}, 300, 0, 0, 17, 1);
  EXPECT_NO_THROW(decide(cases, with_layouts(17), others, 1));
}

// The promise: with 95 % confidence, at most 1 % of the comparisons of unchanged builds raise a false alarm.
class SlowDecisionInNoise : public testing::TestWithParam<SimulatedNoise> {};

std::vector<SimulatedNoise> noises_of_pairs() {
  std::vector<SimulatedNoise> all = noises_without_a_change();
  all.push_back(kOwnOffsets);
  all.push_back(kCommonOffset);
  return all;
}

TEST_P(SlowDecisionInNoise, RaisesFewFalseAlarms) {
  const bool full = simulates_in_full();
  const int runs = full ? 2000 : 60;
  std::string row = fmt::format("| {} |", GetParam().name);
  for (const DecisionRules& rules : {with_placement(), with_layouts()}) {
    const PairTally tally = compare_builds(GetParam(), rules, runs, 100);
    if (full)
      EXPECT_LE(rate_bound(tally.alarmed, runs), 0.01) << tally.alarmed << " of " << runs;
    else
      EXPECT_LE(tally.alarmed, 2);
    row += fmt::format(" {} of {} |", tally.alarmed, runs);
    for (const double effect : {0.02, 0.03, 0.05, 0.10, 0.20}) {
      const PairTally planted = compare_builds(GetParam(), rules, full ? 200 : 10, 20, 1, effect);
      row += fmt::format(" {:.0f} ({:.0f}) |", 100 * planted.found, 100 * planted.undecided);
    }
  }
  fmt::print("{}\n", row);
}

INSTANTIATE_TEST_SUITE_P(Each, SlowDecisionInNoise, testing::ValuesIn(noises_of_pairs()),
                         [](const auto& noise) { return std::to_string(noise.index); });

}  // namespace
}  // namespace halfmark::reports
