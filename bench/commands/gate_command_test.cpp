// End-to-end tests of the gate: exit codes, one line for each error, runs in several processes, a rule for every metric.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "bench/run/case.h"
#include "bench/run/known_names.h"
#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "reports/gate/gate_reference.h"
#include "reports/gate/gate_rules.h"
#include "reports/outputs/gate_mutations_testing.h"
#include "reports/outputs/sample_report.h"
#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/journal.h"

namespace halfmark::bench {
namespace {

class GateCommand : public ProcessTest {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  // Two reports with the same `count` cases; those of the second break a rule.
  void write_reports(int count) const {
    Report base;
    for (int i = 0; i < count; ++i) {
      Record record;
      record.id = "linear/b" + std::to_string(i) + "/cpu/fp16/error";
      record.subject = "linear/b" + std::to_string(i), record.device = "cpu", record.policy = "fp16",
      record.harness = "error";
      record.repro = "halfmark run --case " + record.id;
      Measurement nan{.metric = "error.nan", .at = "output", .value = 0, .better = Better::lower};
      nan.kind = Kind::bounded;
      record.measurements = {nan};
      base.records.push_back(record);
    }
    base.save(folder_ / "base.json");
    for (Record& record : base.records) record.measurements[0].value = 1;
    base.save(folder_ / "new.json");
  }
};

TEST_F(GateCommand, RefusesMistakesWithOneLineAndExitCode2) {
  write_reports(1);
  write("nonsense.json", "this is no report\n");
  write("rules.json", R"({"gate_rules": 1, "keys": {}, "numbers": [{"metric": "a", "judge": "slack", "absolut": 1}]})");
  write("other.json", R"({"schema": 2, "records": []})");
  write("time.json",
        R"({"schema": 1, "minor": 1, "records": [{"id": "a", "subject": "s", "device": "d", "policy": "p", "harness":
            "h", "status": "ok", "measurements": [{"metric": "time.step", "at": "hot", "value": "NaN"}]}]})");
  expect_complaint("gate", "base");
  expect_complaint("gate base.json", "new");
  expect_complaint("gate base.json absent.json", "absent.json: cannot be read");
  expect_complaint("gate nonsense.json new.json", "nonsense.json: is not valid JSON");
  expect_complaint("gate base.json other.json", "other.json: is a report of schema 2");
  expect_complaint("gate base.json time.json", "time.json: time.step at hot of a is NaN, which is not a valid time");
  expect_complaint("gate base.json new.json --rules absent.json", "absent.json: cannot be read");
  expect_complaint("gate base.json new.json --rules rules.json", "rules.json: numbers[0]: unknown key \"absolut\"");
  expect_complaint("gate base.json new.json --rules base.json", "is this a file of gate rules?");
  expect_complaint("gate base.json new.json --acknowledge base.json", "is this a file of acknowledgements?");
  expect_complaint("gate base.json new.json --nonsense", "--nonsense");
  expect_complaint("gate base.json new.json --history absent", "--history absent: cannot be read");
  std::filesystem::create_directory(folder_ / "empty");
  expect_complaint("gate base.json new.json --history empty", "--history empty: holds no report of a run");
}

TEST_F(GateCommand, ExitsWithTheVerdict) {
  write_reports(1);
  EXPECT_EQ(halfmark("gate base.json base.json").code, 0);
  EXPECT_EQ(halfmark("gate base.json base.json --rules strict --same-environment").code, 0);
  EXPECT_EQ(halfmark("gate base.json base.json --time").code, 3);  // there are no times
  const Result result = halfmark("gate base.json new.json");
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(result.err.empty()) << result.err;
  for (const char* part : {"REGRESSION", "ACCURACY_FAIL", "linear/b0/cpu/fp16/error", "error.nan at output is 1, was 0",
                           "halfmark run --case linear/b0/cpu/fp16/error"})
    EXPECT_SAYS(result.out, part);
  Report moved = Report::load(folder_ / "base.json");
  moved.environment["cpu"] = {{"model", "another"}};
  moved.save(folder_ / "moved.json");
  EXPECT_EQ(halfmark("gate base.json moved.json").code, 0);
  EXPECT_EQ(halfmark("gate base.json moved.json --same-environment").code, 3);
}

TEST_F(GateCommand, ExitsWithOneForTwoHundredAndFiftySixRegressions) {
  write_reports(256);
  EXPECT_EQ(halfmark("gate base.json new.json").code, 1);
}

TEST_F(GateCommand, CountsRunsOfTheHistoryOnceAndOnlyEarlierOnes) {
  Report report = timed_report();
  report.run.started = "2026-03-10T00:00:00Z";
  report.save(folder_ / "new.json");
  std::filesystem::create_directory(folder_ / "h");
  report.save(folder_ / "h/new.json");
  expect_complaint("gate new.json new.json --history h", "none of its 1 runs started before new.json");
  for (int day = 1; day <= 6; ++day) {
    report.run.started = "2026-03-0" + std::to_string(day) + "T00:00:00Z";
    report.save(folder_ / ("h/" + std::to_string(day) + ".json"));
  }
  EXPECT_SAYS(halfmark("gate new.json new.json --history h").out, "come from 1 earlier run of this machine");
}

TEST_F(GateCommand, TakesAFileOfAcknowledgements) {
  write_reports(1);
  write("a.json", R"({"acknowledgements": 1, "entries": [{"case": "linear/*", "metric": "error.nan", "from": 0, "to": 1,
                      "reason": "an experiment", "expires": "9999-12-31"}]})");
  EXPECT_EQ(halfmark("gate base.json new.json --acknowledge a.json").code, 0);
  write("a.json", R"({"acknowledgements": 1, "entries": [{"case": "linear/*", "metric": "error.nan", "from": 0, "to": 1,
                      "reason": "an experiment", "expires": "2001-01-01"}]})");
  const Result result = halfmark("gate base.json new.json --acknowledge a.json");
  EXPECT_EQ(result.code, 1);
  EXPECT_SAYS(result.out, "expired on 2001-01-01");
}

class SlowGateCommand : public GateCommand {};
TEST_F(SlowGateCommand, FindsARunNoWorseThanAnotherOfTheSameBuild) {
  const std::string run = "run --no-probes --suite smoke --device cpu linear mlp --policy fp32,amp-fp16 --processes 2 ";
  ASSERT_EQ(halfmark(run + "-o a.json").code, 0);
  ASSERT_EQ(halfmark(run + "-o b.json").code, 0);
  const Result result = halfmark("gate a.json b.json --rules strict --strict-bits --same-environment");
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_EQ(result.out.find("no rule"), std::string::npos) << result.out;
  for (const Record& record : Report::load(folder_ / "a.json").records)
    EXPECT_EQ(record.determinism.proof(), Determinism::Proof::proved) << record.id;
}

TEST_F(GateCommand, RunsInSeveralProcessesAndKeepsAMedianOfEach) {
  ASSERT_EQ(halfmark("run linear/b4_i16_o8 --suite smoke --device cpu --policy fp32 --harness throughput,error "
                     "--processes 3 --timeout 60")
                .code,
            0);
  const Report report = Report::load(folder_ / "report.json");
  ASSERT_EQ(report.records.size(), 2u);
  EXPECT_TRUE(
      report.environment["devices"]["cpu"]["probed"].contains("probe.f32>f32"));  // probed once, not in each process
  for (const Record& record : report.records) {
    EXPECT_EQ(record.determinism.processes, 3);
    const Measurement* times = find(record, kProcessTime, "hot");
    EXPECT_EQ(times != nullptr, record.harness == "throughput");
    if (!times) continue;
    EXPECT_EQ(times->samples.size(), 3u);
    // Each sample is the median of one process; time.step of the record has the steps of one of them. Two processes can have
    // equal medians: a clock of 10 ns and a step of 8 us leave few different ones.
    EXPECT_GE(std::count(times->samples.begin(), times->samples.end(), find(record, "time.step", "hot")->value), 1);
  }
}

TEST_F(GateCommand, GoesOnWithARunInProcessesThatWasKilled) {
  const std::string run =
      "run linear/b4_i16_o8 --no-probes --suite smoke --device cpu --policy fp32,fp16 --harness error ";
  ASSERT_EQ(halfmark(run + "--processes 3 -o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  ASSERT_EQ(whole.records.size(), 2u);
  Report header = whole;
  header.records.clear();
  Journal journal = Journal::create(journal_of(folder_ / "cut.json"), header);
  Record half = whole.records[0];
  half.determinism = {2, 0};
  half.numerics = "from the journal";
  journal.append(half);
  ASSERT_EQ(halfmark(run + "--processes 3 -o cut.json --resume").code, 0);
  const Report resumed = Report::load(folder_ / "cut.json");
  ASSERT_EQ(resumed.records.size(), 2u);
  EXPECT_EQ(resumed.records[0].numerics, "from the journal");
  for (const Record& record : resumed.records) {
    EXPECT_EQ(record.determinism.processes, 3) << record.id;
    EXPECT_EQ(record.determinism.differing, 0) << record.id;
  }
  EXPECT_FALSE(std::filesystem::exists(journal_of(folder_ / "cut.json")));
}

TEST_F(GateCommand, BeginsAnewWhatWasNotMeasuredInProcesses) {
  const std::string run = "run linear/b4_i16_o8 --no-probes --suite smoke --device cpu --policy fp32 --harness error ";
  ASSERT_EQ(halfmark(run + "-o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  Report header = whole;
  header.records.clear();
  Journal journal = Journal::create(journal_of(folder_ / "cut.json"), header);
  Record plain = whole.records.at(0);
  plain.numerics = "from the journal";
  journal.append(plain);
  ASSERT_EQ(halfmark(run + "--processes 2 -o cut.json --resume").code, 0);
  const Record again = Report::load(folder_ / "cut.json").records.at(0);
  EXPECT_EQ(again.determinism.processes, 2);
  EXPECT_EQ(again.numerics, whole.records.at(0).numerics);
}

using SlowGateProperties = GateCommand;
TEST_F(SlowGateProperties, NoMutationOfAFreshReportPassesWithoutAWord) {
  ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear mlp batchnorm2d --policy fp32 --processes 2 "
                     "--harness error,range,memory,throughput,training,batchnorm_drift -o fresh.json")
                .code,
            0);
  Report report = Report::load(folder_ / "fresh.json");
  // A busy machine makes times suspect, which hides nothing here. A record that is ok has a control that holds 1.
  for (Record& record : report.records) {
    if (record.status == Status::suspect) record.status = Status::ok, record.reason.clear();
    for (Measurement& one : record.measurements)
      if (one.metric == "speedup.control" && one.interval)
        one.interval = {std::min(one.interval->lower, 0.99), std::max(one.interval->upper, 1.01)};
  }
  // HALFMARK_LONG=1: ten of each kind, which reach every family of metrics.
  const bool is_long = std::getenv("HALFMARK_LONG") != nullptr;
  const auto counts = gate_test::mutate_all(report, is_long ? 10 : 1, {}, "default");
  EXPECT_GT(counts.by_kind.size(), 20u);
  if (!is_long) return;
  std::set<std::string> families;
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) families.insert(gate_test::family_name(one.metric));
  // Of how the times were sampled there are few numbers, which ten draws may miss.
  for (const std::string& family : families)
    if (family != "timing") {
      EXPECT_TRUE(counts.by_family.contains(family)) << family;
    }
}

// Invalid reports, and the exit code for each.
struct WrongReport {
  const char* what;
  std::function<void(Report&)> spoil;
  int code;
  const char* says;
};

TEST_F(GateCommand, GivesEachWrongReportItsExitCode) {
  Report base = timed_report();
  base.records.resize(1);
  base.records[0].device = "cuda:0";
  base.records[0].id = base.records[0].subject + "/cuda:0/fp32/throughput";
  base.records[0].measurements = {seconds("time.step", "hot", 3e-4)};
  base.environment["devices"]["cuda:0"]["name"] = "H100";
  base.save(folder_ / "base.json");
  const auto takes = [](double time) {
    return [time](Report& report) { report.records[0].measurements[0].value = time; };
  };
  const WrongReport wrong[] = {
      {"nothing", [](Report&) {}, 0, ""},
      {"a case missing", [](Report& report) { report.records.clear(); }, 1, "CASE_LOST"},
      {"a time that is NaN", takes(NAN), 2, "which is not a valid time"},
      {"no time at all", takes(0), 2, "which is not a valid time"},
      {"a negative time", takes(-3e-4), 2, "which is not a valid time"},
      {"a name twice", [](Report& report) { report.records.push_back(report.records[0]); }, 2, "is used twice"},
      {"another schema", [](Report& report) { report.schema = 2; }, 2, "is a report of schema 2"},
      {"another GPU", [](Report& report) { report.environment["devices"]["cuda:0"]["name"] = "B200"; }, 3, "B200"},
  };
  for (const WrongReport& one : wrong) {
    Report report = base;
    one.spoil(report);
    write_file(folder_ / "new.json", to_json(report).dump());
    const Result result = halfmark("gate base.json new.json --same-environment");
    EXPECT_EQ(result.code, one.code) << one.what << "\n" << result.out << result.err;
    EXPECT_SAYS(result.out + result.err, one.says) << one.what;
  }
}

// The kernels of OpenBLAS for a processor without FMA, and for the processor at hand, round differently. The fp64
// reference must be the same up to that; another seed must not.
TEST_F(SlowGateCommand, FindsTheSameMathematicsOnOtherInstructionSets) {
  const std::string run =
      "\"$HALFMARK\" run --suite smoke mlp/b8_i16_h24_o10 convnet/b4_c1_s8_w4 --policy fp32 --harness error,training "
      "--device cpu -o ";
  ASSERT_EQ(shell(run + "base.json").code, 0);
  ASSERT_EQ(shell("OPENBLAS_CORETYPE=Nehalem ONEDNN_MAX_CPU_ISA=SSE41 " + run + "new.json").code, 0);
  const Result gate = halfmark("gate base.json new.json --all");
  EXPECT_SAYS(gate.out, "of the fp64 reference as in the base");
  EXPECT_EQ(gate.out.find("REFERENCE_CHANGED"), std::string::npos) << gate.out;
  ASSERT_EQ(shell(run + "other.json --seed 1").code, 0);
  const Result other = halfmark("gate base.json other.json");
  EXPECT_NE(other.code, 0);
  EXPECT_SAYS(other.out, "the seed is 1, was 0");
}

// A number without a rule would pass with any value.
TEST(GateRulesOfTheSuite, SpeakOfEveryMetricThatIsExactOrBounded) {
  for (const char* name : {"default", "strict"}) {
    const GateRules rules = load_gate_rules(name);
    std::set<const NumberRule*> used;
    for (const Harness& harness : all_harnesses())
      for (const MetricRow& row : harness.metrics)
        for (const char* id : {"linear/x/cpu/fp16/", "mlp/x/cpu/fp16/", "conv2d/x/cpu/fp16/"})
          for (const char* at : {"", "loss", "output"}) {
            Record record;
            record.id = id + std::string(harness.name);
            Measurement one{.metric = std::string(row.metric), .at = at};
            one.kind = row.kind, one.better = row.better;
            if (is_reference(one)) continue;  // judged without rules
            const NumberRule* rule = rules.rule_for(record, one);
            EXPECT_TRUE(rule) << name << ": " << row.metric;
            used.insert(rule);
          }
    for (const NumberRule& rule : rules.numbers) EXPECT_TRUE(used.contains(&rule)) << name << ": " << rule.metric;
  }
}

}  // namespace
}  // namespace halfmark::bench
