// Tests of stored times: judged only from process runs on one machine, with margin, minimum effect and correction.
#include "reports/gate/gate_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports::gate_test {
namespace {

constexpr const char* kTimed = "linear/b64_i1024_o1024/cpu/fp16/throughput";

Report timed_report(double ratio, uint64_t seed, int processes = 24, int cases = 1, double noise = 0.01) {
  Report report = made_report();
  report.records.clear();
  for (int i = 0; i < cases; ++i)
    report.records.push_back(
        timed_record(fmt::format("{}/n={}", kTimed, i), ratio, processes, seed + static_cast<uint64_t>(i), noise));
  return report;
}

Judgement time_gate(const Report& base, const Report& found, const std::string& rules = "default") {
  return gate(base, found, {.time = true}, rules);
}

std::string why_not(const Report& base, const Report& found) {
  const Judgement judgement = time_gate(base, found);
  EXPECT_EQ(judgement.exit_code, 3) << "asked for times and unable to judge them";
  EXPECT_TRUE(judgement.timing.cases.empty());
  return words_of(judgement, Question::time, Outcome::inconclusive);
}

TEST(GateTime, IsTestedOnlyOnRequest) {
  const Judgement judgement = gate(timed_report(1, 1), timed_report(1.2, 2));
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_TRUE(judgement.timing.cases.empty());
  for (const JudgedLine& line : judgement.lines) EXPECT_NE(line.question, Question::time);
}

TEST(GateTime, FindsASlowDownOfAFifthAndReportsItsInterval) {
  const Judgement judgement = time_gate(timed_report(1, 1), timed_report(1.2, 2));
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_EQ(judgement.timing.verdict, Verdict::regression);
  ASSERT_EQ(judgement.timing.cases.size(), 1u);
  EXPECT_NEAR(judgement.timing.cases[0].ratio, 1.2, 0.02);
  EXPECT_LT(judgement.timing.cases[0].interval.lower, judgement.timing.cases[0].ratio);
  EXPECT_NEAR(judgement.timing.cases[0].p, least_rank_sum_p(24, 24), 1e-15);
  const JudgedLine line = lines_with(judgement, Outcome::breach).at(0);
  EXPECT_EQ(line.unit, "s");
  EXPECT_NEAR(line.limit / line.base, 1.1, 1e-12);
  EXPECT_SAYS(line.words, "24 and 24 process runs, p 3.1e-14 after Holm's correction for 1 cases; the rule allows +10");
  EXPECT_EQ(word_of(line.question, line.outcome), "REGRESSION");
}

TEST(GateTime, PassesEffectsBelowTheMinimum) {
  for (const double ratio : {1.0, 1.05, 1.08, 0.95})
    EXPECT_EQ(time_gate(timed_report(1, 1), timed_report(ratio, 2)).exit_code, 0) << ratio;
}

TEST(GateTime, IsInconclusiveIfTheNoiseIsAsLargeAsTheEffect) {
  const Judgement judgement = time_gate(timed_report(1, 1, 24, 1, 0.8), timed_report(1.5, 2, 24, 1, 0.8));
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
}

TEST(GateTime, TurnsARegressionIntoAnImprovementWhenTheSidesAreSwapped) {
  const Report base = timed_report(1, 1), found = timed_report(1.2, 2);
  const Judgement there = time_gate(base, found), back = time_gate(found, base);
  EXPECT_EQ(back.exit_code, 0);
  EXPECT_TRUE(back.timing.cases.at(0).improved);
  EXPECT_EQ(lines_with(back, Outcome::improved).size(), 1u);
  EXPECT_EQ(std::log(there.timing.cases.at(0).ratio), -std::log(back.timing.cases.at(0).ratio));
}

TEST(GateTime, GivesTheSameVerdictForEveryUnitAndOrder) {
  Report base = timed_report(1, 1, 24, 5), found = timed_report(1.06, 50, 24, 5);
  found.records[3] = timed_record(found.records[3].id, 1.2, 24, 9);
  const Judgement one = time_gate(base, found);
  for (Report* report : {&base, &found})
    for (Record& record : report->records) {
      record.measurements[0].value *= 1000;
      for (double& sample : record.measurements[0].samples) sample *= 1000;
    }
  std::reverse(base.records.begin(), base.records.end());
  const Judgement other = time_gate(base, found);
  ASSERT_EQ(one.lines.size(), other.lines.size());
  for (size_t i = 0; i < one.lines.size(); ++i) {
    EXPECT_EQ(one.lines[i].id, other.lines[i].id);
    EXPECT_EQ(one.lines[i].outcome, other.lines[i].outcome);
  }
  EXPECT_EQ(lines_with(one, Outcome::breach).size(), 1u);
}

// A shift of 3 % on each of two days has a standard deviation of 4.2 %: 12 % is then less than three of them.
TEST(GateTime, IsUndecidedIfTheShiftBetweenDaysMayExplainTheEffect) {
  const Report base = timed_report(1, 1, 24, 3), found = timed_report(1.12, 50, 24, 3);
  const Judgement judgement = time_gate(base, found);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(lines_with(judgement, Outcome::inconclusive).size(), 3u);
  EXPECT_SAYS(words_of(judgement, Question::time, Outcome::inconclusive),
              "undecided, because it could be the shift of a case between two days (3 % on each");
  GateRules rules = load_gate_rules("default");
  rules.time.day_spread = 0;  // both reports were measured alternately
  EXPECT_EQ(judge({"a", base}, {"b", found}, rules, {.time = true}).exit_code, 1);
}

// Adds a drift of this share per run to all times, in the order of measurement.
Report with_drift(Report report, double share) {
  for (Record& record : report.records) {
    double factor = 1;
    for (double& sample : record.measurements[0].samples) sample *= factor *= 1 + share;
  }
  return report;
}

TEST(GateTime, IsUndecidedIfTheRunsDependOnEachOther) {
  const Judgement slower = time_gate(with_drift(timed_report(1, 1), 0.01), with_drift(timed_report(1.2, 2), 0.01));
  EXPECT_EQ(slower.exit_code, 3);
  EXPECT_SAYS(words_of(slower, Question::time, Outcome::inconclusive),
              "undecided, because each run depends on the run before it");
  const Judgement same = time_gate(with_drift(timed_report(1, 1), 0.01), with_drift(timed_report(1, 2), 0.01));
  EXPECT_EQ(same.exit_code, 3);
  EXPECT_SAYS(words_of(same, Question::time, Outcome::inconclusive), "an effect of the minimum cannot be excluded");
}

TEST(GateTime, NeverStopsForASpeedUpThatIsNotCertain) {
  const Judgement judgement = time_gate(timed_report(1.12, 1, 24, 3), timed_report(1, 20, 24, 3));
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_TRUE(lines_with(judgement, Outcome::improved).empty());
}

// Each case alone is found by chance at 1 %; the correction limits the whole gate to 1 %.
TEST(GateTime, IsCorrectedForTheNumberOfCases) {
  const Judgement judgement = time_gate(timed_report(1, 1, 24, 40), timed_report(1.2, 1000, 24, 40));
  ASSERT_EQ(judgement.timing.cases.size(), 40u);
  for (const CaseDecision& one : judgement.timing.cases) {
    EXPECT_GE(one.corrected_p, one.p);
    EXPECT_EQ(one.verdict, Verdict::regression);
  }
  EXPECT_NEAR(judgement.timing.cases[0].corrected_p / judgement.timing.cases[0].p, 40, 1e-9);
  EXPECT_EQ(judgement.timing.process_runs, 40 * 48);
}

TEST(GateTime, RequiresEnoughProcessesOnBothSides) {
  EXPECT_SAYS(why_not(timed_report(1, 1, 23), timed_report(2, 2, 24)), "23 process runs in the base and 24 here");
  EXPECT_SAYS(why_not(timed_report(1, 1, 24), timed_report(2, 2, 23)), "halfmark run --processes 24");
}

TEST(GateTime, NeverTreatsSamplesOfOneProcessAsReplicates) {
  Report base = timed_report(1, 1, 400), found = timed_report(2, 2, 400);
  base.records[0].determinism = {1, 0};
  EXPECT_SAYS(why_not(base, found), "400 samples of 1 processes are not replicates");
  base.records[0].determinism = {};
  EXPECT_SAYS(why_not(base, found), "400 samples of 0 processes are not replicates");
  // The samples of an ordinary run.
  base = timed_report(1, 1, 400), found = timed_report(2, 2, 400);
  for (Report* report : {&base, &found}) report->records[0].measurements[0].metric = "time.step";
  EXPECT_SAYS(why_not(base, found), "0 process runs in the base and 0 here");
}

TEST(GateTime, RequiresTheSameMachine) {
  Report found = timed_report(2, 2);
  found.environment["machine"] = "bench-02";
  EXPECT_SAYS(why_not(timed_report(1, 1), found), "the machines differ in machine");
  const Judgement judgement = gate(timed_report(1, 1), found, {.same_environment = true, .time = true});
  EXPECT_EQ(judgement.exit_code, 3);
}

TEST(GateTime, DoesNotJudgeSuspectRecords) {
  Report found = timed_report(2, 2);
  found.records[0].status = Status::suspect, found.records[0].reason = "emulated arithmetic";
  EXPECT_SAYS(why_not(timed_report(1, 1), found), "not valid here: emulated arithmetic");
  EXPECT_SAYS(why_not(found, timed_report(1, 1)), "not valid in the base: emulated arithmetic");
}

TEST(GateTime, RefusesALevelAtWhichNothingCanBeFound) {
  GateRules rules = load_gate_rules("default");
  rules.time.alpha = 1e-13;
  rules.time.day_spread = 0;
  const auto run = [&](int cases) {
    return judge({"a", timed_report(1, 1, 24, cases)}, {"b", timed_report(1.2, 99, 24, cases)}, rules, {.time = true});
  };
  EXPECT_EQ(run(3).exit_code, 1);
  try {
    run(4);
    ADD_FAILURE() << "four cases cannot reach 1e-13";
  } catch (const ReportError& error) {
    EXPECT_SAYS(error.what(), "time.alpha = 1e-13 can find nothing");
  }
}

TEST(GateTime, CountsTheReasonsWhyNothingWasJudged) {
  Report both = made_report();
  both.records = {timed_record("a/cpu/fp32/throughput", 1, 30, 1), timed_record("b/cpu/fp32/throughput", 1, 30, 2),
                  timed_record("c/cpu/fp32/throughput", 1, 3, 3)};
  for (Record* record : {&both.records[0], &both.records[1]})
    record->status = Status::suspect, record->reason = "emulated by " + record->id;
  std::vector<std::string> remarks = time_gate(both, both).remarks;
  remarks.resize(2);  // those on stored times follow
  EXPECT_EQ(
      remarks,
      (std::vector<std::string>{
          "no time could be judged: 3 process runs in the base and 3 here, 24 are needed on each side: halfmark run "
          "--processes 24 (1 case)",
          "no time could be judged: its timing is not valid in the base (2 cases)"}));
}

TEST(GateTime, IsInconclusiveIfNothingWasJudged) {
  const Judgement judgement = time_gate(made_report(), made_report());
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(words_of(judgement, Question::time, Outcome::inconclusive),
            "no time could be judged: no record of both reports has a time");
}

}  // namespace
}  // namespace halfmark::reports::gate_test
