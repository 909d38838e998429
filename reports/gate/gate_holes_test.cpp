// Holes through which a worse report once passed: each has a test of its name. Nothing that the gate did not judge may
// pass without a word, and what the base could judge and the new report cannot changes the exit code.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/gate/time_limits.h"
#include "reports/record/folder_testing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports::gate_test {
namespace {

constexpr const char* kStepCase = "linear/b64_i1024_o1024/cpu/fp16/throughput";

Measurement& times_by(Measurement& one, double factor) {
  one.value *= factor;
  for (double& sample : one.samples) sample *= factor;
  return one;
}

// A record as `halfmark run` writes it: the steps of one process, and the rate that follows from them.
Record plain_timed_record(const std::string& id, uint64_t seed, double noise = 0.01) {
  Record record = timed_record(id, 1, 40, seed, noise);
  record.measurements[0].metric = "time.step";
  record.determinism = {};
  Measurement rate = record.measurements[0];
  rate.metric = "throughput.step", rate.unit = "1/s", rate.better = Better::higher;
  rate.value = 64 / rate.value;
  for (double& sample : rate.samples) sample = 64 / sample;
  record.measurements.push_back(rate);
  record.kernels = {{"matmul", "forward", "f16,f16->f16", "onednn", "real", 1, {}}};
  return record;
}

Report step_report(int cases, uint64_t seed, double noise = 0.01) {
  Report report = made_report();
  report.records.clear();
  for (int i = 0; i < cases; ++i)
    report.records.push_back(plain_timed_record(fmt::format("{}/n={}", kStepCase, i), seed + 100 * i, noise));
  return report;
}

Report in_processes(int cases, int processes, uint64_t seed) {
  Report report = made_report();
  report.records.clear();
  for (int i = 0; i < cases; ++i) {
    report.records.push_back(timed_record(fmt::format("{}/n={}", kStepCase, i), 1, processes, seed + 100 * i));
    Measurement step = report.records.back().measurements[0];
    step.metric = "time.step";
    report.records.back().measurements.push_back(step);
  }
  return report;
}

// Rates are divided, so that the report stays consistent.
Report times_scaled(Report report, double factor, size_t records = SIZE_MAX) {
  for (Record& record : report.records) {
    if (records-- == 0) break;
    for (Measurement& one : record.measurements)
      if (is_stored_time(one)) times_by(one, one.unit == "s" ? factor : 1 / factor);
  }
  return report;
}

TEST(GateHoles, SuspectsEveryTimeDoubledOrTenTimesAsLong) {
  for (const double factor : {2.0, 10.0, 0.5, 0.1})
    for (const int cases : {1, 4, 20}) {
      const Judgement judgement = gate(step_report(cases, 1), times_scaled(step_report(cases, 1), factor));
      EXPECT_EQ(judgement.exit_code, 3) << factor << " " << cases;
      EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
      EXPECT_EQ(lines_with(judgement, Outcome::suspected).size(), static_cast<size_t>(cases) + (cases >= 5 ? 1 : 0));
      const JudgedLine line = lines_with(judgement, Outcome::suspected).back();
      EXPECT_EQ(word_of(line.question, line.outcome), "SUSPECTED");
      EXPECT_EQ(line.rerun, "halfmark ab BASE_BUILD NEW_BUILD linear/b64_i1024_o1024 --policy fp16 --device cpu");
      EXPECT_SAYS(line.words, factor > 1 ? "x slower, and noise of stored times explains at most 1."
                                         : "x faster, and noise of stored times explains at most 1.");
      EXPECT_GT(std::log(line.found / line.base) / std::log(line.limit / line.base), 1);
    }
}

TEST(GateHoles, TheCommandThatDecidesMeasuresOnTheDataOfTheCase) {
  Report base = step_report(1, 1);
  for (Record& record : base.records) {
    record.data = DataOrigin{
        .kind = "mnist", .name = "my digits", .hash = "3f1c", .hashed = "contents", .normalisation = "", .unit = ""};
    record.repro = "halfmark run --case x --data '/home/my digits' --seed 7";
  }
  EXPECT_EQ(
      lines_with(gate(base, times_scaled(base, 10)), Outcome::suspected).at(0).rerun,
      "halfmark ab BASE_BUILD NEW_BUILD linear/b64_i1024_o1024 --policy fp16 --device cpu --data '/home/my digits'");
}

TEST(GateHoles, SuspectsTheOneCaseWhoseTimeDoubled) {
  const Judgement judgement = gate(step_report(8, 1), times_scaled(step_report(8, 2), 2, 1));
  EXPECT_EQ(judgement.exit_code, 3);
  ASSERT_EQ(lines_with(judgement, Outcome::suspected).size(), 1u);
  EXPECT_EQ(lines_with(judgement, Outcome::suspected)[0].id, std::string(kStepCase) + "/n=0");
}

// The value and the samples of a measurement say the same; an edited report could change only one of them.
TEST(GateHoles, SuspectsATimeWhoseSamplesOrValueAloneAreWorse) {
  Report value = step_report(1, 1), samples = step_report(1, 1);
  value.records[0].measurements[0].value *= 10;
  for (double& sample : samples.records[0].measurements[0].samples) sample *= 10;
  EXPECT_EQ(gate(step_report(1, 1), value).exit_code, 3);
  EXPECT_EQ(gate(step_report(1, 1), samples).exit_code, 3);
}

// No record that is ok has a wider interval than 10 % (bench/run/timing.h), so the limit of one process stays below 2.
TEST(GateHoles, HasALimitBelowTwoForEveryTimeThatIsOk) {
  const StoredTimeRule rule;
  EXPECT_LT(rule.run_shift + rule.process_spread + 2 * rule.widest_interval, std::log(2.0));
  EXPECT_NEAR(rule.run_shift, std::log(1.05 / 0.95), 1e-4);
  EXPECT_NEAR(rule.process_spread, -std::log(0.68), 1e-4);
  EXPECT_NEAR(rule.widest_interval, std::log(1.1), 1e-4);
  EXPECT_NEAR(rule.least, std::log(1.25), 1e-4);
  for (const double noise : {0.001, 0.01, 0.1}) {
    const Record base = plain_timed_record(kStepCase, 1, noise), found = plain_timed_record(kStepCase, 2, noise);
    const double limit = noise_limit(rule, base, found, base.measurements[0], found.measurements[0]);
    EXPECT_LT(limit, std::log(2.0)) << noise;
    EXPECT_GT(limit, rule.run_shift + rule.process_spread);
  }
}

TEST(GateHoles, WidensTheLimitWithTheScatterOfTheTwoReports) {
  const StoredTimeRule rule;
  double before = 0;
  for (const double noise : {0.01, 0.03, 0.1}) {
    const Record one = plain_timed_record(kStepCase, 1, noise);
    const double limit = noise_limit(rule, one, one, one.measurements[0], one.measurements[0]);
    const double half = median_interval(one.measurements[0].samples).half_width() / one.measurements[0].value;
    EXPECT_NEAR(limit, rule.run_shift + rule.process_spread + 2 * std::log1p(half), 2e-3) << noise;
    EXPECT_GT(limit, before);
    before = limit;
  }
}

TEST(GateHoles, TakesTheSpreadOfProcessesFromReportsThatHaveThem) {
  const StoredTimeRule rule;
  const Report few = in_processes(1, 5, 1), many = in_processes(1, 24, 2);
  const auto limit = [&](const Report& base, const Report& found, size_t which) {
    return noise_limit(rule, base.records[0], found.records[0], base.records[0].measurements[which],
                       found.records[0].measurements[which]);
  };
  EXPECT_GE(limit(few, many, 1), rule.run_shift + rule.process_spread);  // time.step, 5 processes
  EXPECT_LT(limit(many, many, 1), rule.run_shift + rule.process_spread);
  EXPECT_EQ(limit(many, many, 0), rule.least);  // time.process: the median of 24
  EXPECT_GE(limit(few, many, 0), rule.run_shift + rule.process_spread);
}

TEST(GateHoles, SaysWhichTimesWereNotJudgedAndHowFarTheyCouldBe) {
  const Judgement same = gate(step_report(8, 1), step_report(8, 1));
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_SAYS(all_words(same), "times not judged (stored times of two runs cannot tell less than 6");
  EXPECT_SAYS(all_words(same), "): 8 cases; halfmark ab BASE_BUILD NEW_BUILD judges them");
  EXPECT_EQ(all_words(same).find("largest difference"), std::string::npos);
  const Judgement some = gate(step_report(8, 1), times_scaled(step_report(8, 1), 1.4, 1));
  EXPECT_EQ(some.exit_code, 0);
  EXPECT_SAYS(all_words(some), "/n=0 is 1.40x slower");
  EXPECT_EQ(all_words(gate(made_report(), made_report())).find("times not judged"), std::string::npos);
}

TEST(GateHoles, SuspectsACommonShiftThatNoCaseShowsAlone) {
  for (const double factor : {1.25, 0.8}) {
    const Judgement judgement = gate(step_report(20, 1), times_scaled(step_report(20, 7), factor));
    EXPECT_EQ(judgement.exit_code, 3);
    ASSERT_EQ(lines_with(judgement, Outcome::suspected).size(), 1u);
    const JudgedLine line = lines_with(judgement, Outcome::suspected)[0];
    EXPECT_SAYS(line.words, "all times moved together: 20 of 20 cases are ");
    EXPECT_SAYS(line.words, "the machine changed, or something slowed down or sped up everywhere");
    EXPECT_EQ(line.rerun, "halfmark ab BASE_BUILD NEW_BUILD");
  }
  // Half of the cases is no common shift, and a run shifts by up to 5 %.
  EXPECT_EQ(gate(step_report(20, 1), times_scaled(step_report(20, 7), 1.25, 9)).exit_code, 0);
  EXPECT_EQ(gate(step_report(20, 1), times_scaled(step_report(20, 7), 1.08)).exit_code, 0);
}

TEST(GateHoles, IsNotAlarmedByTheNoiseOfUnchangedCode) {
  // Cases scatter by 10 % from run to run, far more than on a quiet machine: two runs of 40 cases, 50 times.
  int alarms = 0;
  for (int run = 0; run < 50; ++run) {
    Report base = step_report(40, 1), found = base;
    std::mt19937_64 random(static_cast<uint64_t>(run));
    for (Report* report : {&base, &found})
      for (Record& record : report->records) {
        double z = -6;
        for (int k = 0; k < 12; ++k) z += static_cast<double>(random() >> 11) * 0x1p-53;
        for (Measurement& one : record.measurements) times_by(one, std::exp((one.unit == "s" ? 0.1 : -0.1) * z));
      }
    alarms += gate(base, found).exit_code != 0;
  }
  EXPECT_LE(alarms, 2);
}

// Runs of a machine whose times move by up to `ln` from run to run.
TimeHistory history_of(int runs, double ln, const Report& base) {
  TimeHistory history;
  for (int i = 0; i < runs; ++i)
    history.add(times_scaled(base, std::exp(i % 2 == 0 ? ln : 0)), base, load_gate_rules("default").time_keys);
  return history;
}

TEST(GateHoles, TakesTheLimitsFromTheHistoryOfTheMachine) {
  const Report base = step_report(3, 1);
  const auto history_with_step_of = [&](double factor) {
    GateOptions options;
    options.time_history = history_of(8, std::log(factor), base);
    return options;
  };
  GateOptions steady, wild, few;
  steady.time_history = history_of(8, 0.1, base), wild.time_history = history_of(8, 0.6, base);
  few.time_history = history_of(4, 0.01, base);
  EXPECT_EQ(gate(base, times_scaled(base, 1.5, 1)).exit_code, 0);
  EXPECT_EQ(gate(base, times_scaled(base, 1.5, 1), steady).exit_code, 3);
  EXPECT_EQ(gate(base, times_scaled(base, 1.2, 1), steady).exit_code, 0);
  EXPECT_EQ(gate(base, times_scaled(base, 2, 1)).exit_code, 3);
  EXPECT_EQ(gate(base, times_scaled(base, 2, 1), wild).exit_code, 0);
  EXPECT_EQ(gate(base, times_scaled(base, 10, 1), history_with_step_of(10)).exit_code, 3)
      << "a change in the history does not excuse every later one";
  EXPECT_EQ(gate(base, times_scaled(base, 1.5, 1), few).exit_code, 0);
  EXPECT_SAYS(all_words(gate(base, base, steady)), "come from 8 earlier runs of this machine and software");
  const StoredTimeRule rule;
  const Record& one = base.records[0];
  const double limit = noise_limit(rule, one, one, one.measurements[0], one.measurements[0], steady.time_history);
  EXPECT_NEAR(limit, 0.2, 1e-12);
  EXPECT_EQ(noise_limit(rule, one, one, one.measurements[0], one.measurements[0], history_of(8, 0, base)),
            rule.run_shift);
}

TEST(GateHoles, ComparesTheTimesThatTheTestOfTimeDoesNotCover) {
  const auto report = [](double step) {
    Report made = made_report();
    made.records = {timed_record("linear/b4_i16_o8/cpu/fp32/throughput", 1, 24, 1)};
    Measurement one = number("time.step", "hot", step, Kind::sampled);
    one.unit = "s";
    made.records[0].measurements.push_back(one);
    return made;
  };
  EXPECT_EQ(gate(report(1e-3), report(1e-3), {.time = true}).exit_code, 0);
  EXPECT_EQ(gate(report(1e-3), report(1e-1), {.time = true}).exit_code, 3);
}

TEST(GateHoles, SaysThatASpeedUpWasLost) {
  const auto report = [](double value) {
    Report made = made_report();
    Measurement ratio = number("speedup.step", "hot", value, Kind::sampled, Better::higher);
    ratio.interval = Range{value * 0.98, value * 1.02};
    made.records[0].measurements.push_back(ratio);
    return made;
  };
  EXPECT_TRUE(gate(report(1.9), report(1.91)).remarks.empty());
  EXPECT_SAYS(all_words(gate(report(1.9), report(0.96))), "ratios whose intervals do not overlap");
  Report wide = report(1.9);
  wide.records[0].measurements.back().interval = Range{0.1, 20};
  EXPECT_SAYS(all_words(gate(report(1.9), wide)), "0.1 to 20, was 1.86 to 1.94");
}

TEST(GateHoles, DoesNotTakeAnInfiniteStandardErrorOrABaseThatIsNoTime) {
  Report base = made_report();
  base.records[0].measurements.push_back(number("evaluation.accuracy", "fp32", 0.6, Kind::bounded, Better::higher));
  base.records[0].measurements.back().standard_error = 0.015;
  for (const double error : {HUGE_VAL, double{NAN}, -1.0, 1.5, 0.06, 0.031}) {  // 0.015 is that of 1,000 samples
    Report found = base;
    found.records[0].measurements.back().standard_error = error;
    EXPECT_EQ(gate(base, found).exit_code, 1) << error;
  }
  Report timed = step_report(1, 1);
  const Report found = timed;
  timed.records[0].measurements.push_back(number("time.forward", "hot", NAN, Kind::sampled));
  timed.records[0].measurements.back().unit = "s";
  Report after = found;
  after.records[0].measurements.push_back(timed.records[0].measurements.back());
  after.records[0].measurements.back().value = 1;
  EXPECT_EQ(gate(timed, after).exit_code, 3);
}

TEST(GateHoles, SaysThatANewCaseFailedOrBreaksItsOwnBound) {
  Report base = made_report(), failed = made_report(), broken = made_report();
  base.records.resize(1);
  failed.records[1].status = Status::failed, failed.records[1].reason = "boom";
  EXPECT_SAYS(all_words(gate(base, failed)), "is not in the base, and failed: boom");
  broken.records[1].measurements = {number("error.arithmetic.nmse", "output", 1e30)};
  broken.records[1].measurements[0].bound = 1e-6;
  EXPECT_EQ(gate(base, broken).exit_code, 1);
}

TEST(GateHoles, WritesTheNumbersOfEachCaseOnItsOwnLine) {
  Report base = made_report(), found = made_report();
  base.records = {timed_record("a", 1, 24, 1), timed_record("b", 1, 24, 2)};
  found.records = {timed_record("a", 1, 24, 3), timed_record("b", 2, 24, 4)};
  const Judgement judgement = gate(base, found, {.time = true});
  EXPECT_EQ(judgement.timed, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(judgement.timing.cases.size(), 2u);
  EXPECT_NEAR(judgement.timing.cases[1].ratio, 2, 0.05);
}

TEST(GateHoles, LeavesOutTheHistoryOfAnotherMachine) {
  const Report base = step_report(1, 1);
  Report other = base;
  other.environment["machine"] = "bench-02";
  GateOptions options;
  for (int i = 0; i < 8; ++i) options.time_history.add(other, base, load_gate_rules("default").time_keys);
  EXPECT_EQ(gate(base, times_scaled(base, 1.5), options).exit_code, 0);
  EXPECT_SAYS(all_words(gate(base, base, options)), "come from 0 earlier runs");
}

TEST(GateHoles, DoesNotCountRatiosAsTimes) {
  Report base = step_report(1, 1);
  Measurement speedup = number("speedup.step", "hot", 1.5, Kind::sampled, Better::higher);
  EXPECT_FALSE(is_stored_time(speedup));
  base.records[0].measurements.push_back(speedup);
  Report found = base;
  found.records[0].measurements.back().value = 4;
  EXPECT_TRUE(lines_with(gate(base, found), Outcome::suspected).empty());
}

TEST(GateHoles, SuspectsACaseThatIsSuspectNowAndTenTimesSlower) {
  Report found = times_scaled(step_report(1, 1), 10);
  found.records[0].status = Status::suspect, found.records[0].reason = "the machine was busy";
  const Judgement judgement = gate(step_report(1, 1), found);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_SAYS(all_words(judgement), "its time is suspect now: the machine was busy");
  found = step_report(1, 1);
  found.records[0].status = Status::suspect, found.records[0].reason = "the machine was busy";
  EXPECT_EQ(gate(step_report(1, 1), found).exit_code, 0);
  EXPECT_SAYS(all_words(gate(step_report(1, 1), found)), "suspect now: the machine was busy");
  // However widely it scatters.
  found = times_scaled(step_report(1, 1, 3), 10);
  found.records[0].status = Status::suspect, found.records[0].reason = "the machine was busy";
  EXPECT_EQ(gate(step_report(1, 1), found).exit_code, 3);
}

TEST(GateHoles, SuspectsACaseWhoseKernelsEmulateNow) {
  Report found = step_report(1, 1);
  found.records[0].status = Status::suspect, found.records[0].reason = "emulated: upcast";
  found.records[0].kernels[0].row = "upcast", found.records[0].kernels[0].speed = "emulated";
  const Judgement judgement = gate(step_report(1, 1), found);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_SAYS(all_words(judgement), "kernels emulate now (matmul f16,f16->f16 by upcast)");
}

TEST(GateHoles, CountsTheTimesThatWereSuspectInTheBase) {
  Report base = step_report(3, 1);
  for (Record& record : base.records) record.status = Status::suspect, record.reason = "emulated";
  const Judgement judgement = gate(base, times_scaled(base, 10));
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(all_words(judgement), "times not judged, because they are suspect in the base: 3 cases");
  EXPECT_EQ(gate(base, base, {.time = true}).exit_code, 3);
}

TEST(GateHoles, LosesACaseThatLostATime) {
  Report found = step_report(2, 1);
  found.records[0].measurements.erase(found.records[0].measurements.begin());
  Judgement judgement = gate(step_report(2, 1), found);
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(words_of(judgement, Question::time, Outcome::lost), "not measured any more: time.step at hot");
  // A rate is not refused by the reader if it is no number.
  for (const double value : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    found = step_report(2, 1);
    found.records[1].measurements[1].value = value;
    judgement = gate(step_report(2, 1), found);
    EXPECT_EQ(judgement.exit_code, 1) << value;
    EXPECT_SAYS(words_of(judgement, Question::time, Outcome::lost), "is not a time");
  }
  found = step_report(2, 1);
  found.records[1].measurements[1].kind = Kind::information;
  EXPECT_EQ(gate(step_report(2, 1), found).exit_code, 1);
}

TEST(GateHoles, SuspectsAMissingTimeOfProcesses) {
  Report found = in_processes(1, 24, 1);
  found.records[0].measurements.erase(found.records[0].measurements.begin());
  for (const bool time : {false, true}) {
    const Judgement judgement = gate(in_processes(1, 24, 1), found, {.time = time});
    EXPECT_EQ(judgement.exit_code, 3);
    EXPECT_SAYS(all_words(judgement), "halfmark run --processes 24");
    EXPECT_SAYS(all_words(judgement), "time.process is missing, the base has it of 24 processes");
  }
}

TEST(GateHoles, IsUndecidedAboutOneCaseOfFewerProcessesAlthoughTheOthersAreJudged) {
  const Report base = in_processes(3, 24, 1);
  Report found = in_processes(3, 24, 2);
  EXPECT_EQ(gate(base, found, {.time = true}).exit_code, 0);
  found.records[1] = in_processes(2, 5, 2).records[1];
  const Judgement judgement = gate(base, found, {.time = true});
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(judgement.timing.cases.size(), 2u);
  EXPECT_SAYS(words_of(judgement, Question::time, Outcome::inconclusive), "24 process runs in the base and 5 here");
}

TEST(GateHoles, IsUndecidedAboutACaseThatIsSuspectNowAlthoughTheOthersAreJudged) {
  const Report base = in_processes(3, 24, 1);
  Report found = in_processes(3, 24, 2);
  found.records[1].status = Status::suspect, found.records[1].reason = "the machine was busy";
  EXPECT_EQ(gate(base, found, {.time = true}).exit_code, 3);
  // Suspect in the base already, as every emulated format on a CPU: nothing is lost.
  EXPECT_EQ(gate(found, found, {.time = true}).exit_code, 0);
  EXPECT_SAYS(all_words(gate(found, found, {.time = true})), "because they are suspect in the base: 1 case");
}

TEST(GateHoles, SaysThatTimesOfAnotherMachineAreNotJudged) {
  Report found = times_scaled(step_report(3, 1), 10);
  found.environment["machine"] = "bench-02";
  const Judgement judgement = gate(step_report(3, 1), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(all_words(judgement), "times not judged, because the machines or their software differ: 3 cases");
  EXPECT_EQ(gate(step_report(3, 1), found, {.time = true}).exit_code, 3);
}

TEST(GateHoles, DoesNotSuspectAnImprovementThatTheTestHasShown) {
  const Report base = in_processes(2, 24, 1);
  const Judgement judgement = gate(base, times_scaled(in_processes(2, 24, 2), 0.3), {.time = true});
  EXPECT_EQ(judgement.exit_code, 0) << all_words(judgement);
  EXPECT_EQ(lines_with(judgement, Outcome::improved).size(), 2u);
}

TEST(GateHoles, RefusesAnEmptyBaseAndDuplicateMeasurements) {
  EXPECT_SAYS(complaint([] { gate(Report{}, made_report()); }), "base.json: has no records");
  Report twice = made_report();
  twice.records[0].measurements.push_back(twice.records[0].measurements[0]);
  twice.records[0].measurements.back().value = 1;
  EXPECT_SAYS(complaint([&] { gate(made_report(), twice); }), "new.json: linear/");
  EXPECT_SAYS(complaint([&] { gate(twice, made_report()); }), "has error.nmse at \"output\" twice");
}

}  // namespace
}  // namespace halfmark::reports::gate_test
