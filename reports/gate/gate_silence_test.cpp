// Holes through which a worse report once passed without a word, except those about times (gate_holes_test.cpp): bits,
// proofs, missing parts, rules files that judge less, tensors that became zero.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"
#include "reports/record/json_parser.h"

namespace halfmark::reports::gate_test {
namespace {

std::string remarks_of(const Judgement& judgement) {
  std::string text;
  for (const std::string& remark : judgement.remarks) text += remark + "\n";
  return text;
}

Report with_determinism(Determinism determinism) {
  Report report = made_report();
  for (Record& record : report.records) record.determinism = determinism;
  return report;
}

Judgement strict_bits(const Report& base, const Report& found) {
  GateOptions options;
  options.strict_bits = true;
  return gate(base, found, options);
}

TEST(GateSilence, PassesAPairOfEqualReportsWithoutARemark) {
  EXPECT_EQ(strict_bits(made_report(), made_report()).exit_code, 0);
  EXPECT_EQ(remarks_of(strict_bits(made_report(), made_report())), "");
}

TEST(GateSilence, CannotPassStrictBitsWithoutAFingerprint) {
  Report without = made_report();
  without.records[0].fingerprint = "";
  EXPECT_EQ(strict_bits(made_report(), without).exit_code, 1);
  EXPECT_EQ(strict_bits(without, made_report()).exit_code, 3);
  EXPECT_EQ(strict_bits(without, without).exit_code, 3);
  EXPECT_SAYS(remarks_of(gate(without, made_report())),
              "a fingerprint in one report only, where bits are not compared");
  // Bits of memory records are never compared; that one is missing is said.
  without = made_report();
  without.records[1].fingerprint = "";
  EXPECT_SAYS(remarks_of(gate(made_report(), without)), "1 (linear/b64_i1024_o1024/cpu/fp16/memory)");
}

TEST(GateSilence, CannotPassStrictBitsWhereDeterminismIsRefuted) {
  const Report refuted = with_determinism({5, 2});
  EXPECT_EQ(strict_bits(refuted, refuted).exit_code, 3);
  EXPECT_EQ(strict_bits(refuted, made_report()).exit_code, 3);
  EXPECT_SAYS(words_of(strict_bits(refuted, refuted), Question::bits, Outcome::inconclusive),
              "not deterministic (refuted in the base, refuted here)");
  EXPECT_EQ(gate(refuted, refuted).exit_code, 0);
  Report elsewhere = refuted;
  elsewhere.environment["libraries"]["onednn"] = "3.1.1";
  EXPECT_EQ(strict_bits(made_report(), elsewhere).exit_code, 3);
}

TEST(GateSilence, CannotPassStrictBitsThatCouldNotBeCompared) {
  Report found = with_determinism({1, 0});
  EXPECT_EQ(strict_bits(made_report(), found).exit_code, 0) << "the same bits";
  found.records[0].fingerprint = "77a1";
  EXPECT_EQ(strict_bits(made_report(), found).exit_code, 3) << "determinism is not proved";
  EXPECT_SAYS(remarks_of(gate(made_report(), found)), "different bits that were not judged, because determinism");
  found = made_report();
  found.records[0].fingerprint = "77a1", found.run.seed = 7;
  EXPECT_EQ(strict_bits(made_report(), found).exit_code, 3) << "another seed excuses no bits";
}

TEST(GateSilence, SaysThatAProofOrProcessesAreMissing) {
  const Judgement judgement = gate(with_determinism({5, 0}), with_determinism({1, 0}));
  EXPECT_SAYS(remarks_of(judgement),
              "proved to be deterministic in the base and not here, so that other bits prove "
              "nothing: 2 (linear/");
  EXPECT_SAYS(remarks_of(judgement), "/memory: 5 -> 1");
  EXPECT_EQ(remarks_of(gate(with_determinism({1, 0}), with_determinism({5, 0}))), "");
}

TEST(GateSilence, LosesARecordThatSaysToBeAnotherCase) {
  const std::pair<const char*, void (*)(Record&)> edits[] = {
      {"policy fp16 -> bf16", [](Record& one) { one.policy = "bf16"; }},
      {"device cpu -> cuda:0", [](Record& one) { one.device = "cuda:0"; }},
      {"harness error -> range", [](Record& one) { one.harness = "range"; }},
      {"subject linear/b64_i1024_o1024 -> linear/b1", [](Record& one) { one.subject = "linear/b1"; }},
      {"other axes", [](Record& one) { one.axes["cache"] = "cold"; }}};
  for (const auto& [words, edit] : edits) {
    Report found = made_report();
    edit(found.records[0]);
    EXPECT_EQ(gate(made_report(), found).exit_code, 1) << words;
    EXPECT_SAYS(words_of(gate(made_report(), found), Question::presence, Outcome::lost), words);
  }
}

TEST(GateSilence, SaysWhatCouldNotBeMeasuredInEitherReport) {
  Report both = made_report();
  both.records[0].status = Status::failed, both.records[0].reason = "crash";
  EXPECT_EQ(gate(both, both).exit_code, 0);
  EXPECT_SAYS(remarks_of(gate(both, both)), "cases without a measurement in both reports: 1 (linear/");
}

TEST(GateSilence, SaysThatACaseIsOkNowThatWasSuspect) {
  Report base = made_report();
  base.records[0].status = Status::suspect, base.records[0].reason = "the machine was busy";
  EXPECT_SAYS(remarks_of(gate(base, made_report())), "ok now, was suspect: the machine was busy");
}

// Both are called cuda:0, and no number of either is wrong.
TEST(GateSilence, ComparesNothingBetweenAGpuAndASoftwareGpu) {
  Report gpu = made_report(), software = made_report();
  for (Report* report : {&gpu, &software})
    for (Record& record : report->records) record.device = "cuda:0";
  EXPECT_EQ(gate(gpu, software).exit_code, 0);
  for (Record& record : software.records) record.numerics = "software GPU: PTX interpreted on the CPU";
  EXPECT_EQ(gate(software, software).exit_code, 0);
  for (const auto& [base, found, way] : {std::tuple{gpu, software, "(hardware -> software GPU: PTX"},
                                         std::tuple{software, gpu, "interpreted on the CPU -> hardware)"}}) {
    const Judgement judgement = gate(base, found);
    EXPECT_EQ(judgement.exit_code, 3);
    const std::vector<JudgedLine> lines = lines_with(judgement, Outcome::inconclusive);
    ASSERT_EQ(lines.size(), gpu.records.size());
    EXPECT_SAYS(lines[0].words, "was measured on another kind of device than the base");
    EXPECT_SAYS(lines[0].words, way);
    EXPECT_TRUE(lines_with(judgement, Outcome::pass).empty());
  }
}

TEST(GateSilence, SaysThatCurvesKernelsAndNumbersForInformationAreMissingOrOther) {
  Report base = made_report();
  Record& record = base.records[0];
  record.kernels = {{"matmul", "forward", "f16,f16->f16", "onednn", "real", 1, {}}};
  record.series.push_back({.metric = "training.loss", .at = "", .x = {0, 1}, .y = {2, 1}});
  record.measurements.push_back(number("work.bytes", "", 100, Kind::information, Better::neither));
  record.numerics = "instruction-exact";
  record.expectation = Expectation{"error.nan", "output", "==", 0, 0, true};
  EXPECT_EQ(remarks_of(gate(base, base)), "");
  Report found = made_report();
  Judgement judgement = gate(base, found);
  EXPECT_EQ(judgement.exit_code, 0);
  for (const char* words :
       {"curves of the base that are missing: 1 (training.loss of linear/",
        "other kernels ran, or their list is missing: 1 (linear/b64_i1024_o1024/cpu/fp16/error: matmul "
        "forward f16,f16->f16 by onednn (real) x 1 -> nothing)",
        "numbers for information that are missing: 1 (work.bytes of linear/",
        "how exact the arithmetic is changed: 1 (linear/b64_i1024_o1024/cpu/fp16/error: "
        "instruction-exact -> nothing)",
        "results of a negative control that are missing or different: 1"})
    EXPECT_SAYS(remarks_of(judgement), words);
  EXPECT_SAYS(remarks_of(gate(found, base)),
              "numbers that the base does not have, so that only their own bounds were "
              "judged: 1 (work.bytes of linear/");
  found = base;
  found.records[0].series.back().y = {20, 10}, found.records[0].fingerprint = "00ff";
  EXPECT_SAYS(remarks_of(gate(base, found)), "curves that changed by a factor of 2 or more");
  found = base;
  at(found.records[0], "work.bytes").value = 200;
  EXPECT_SAYS(remarks_of(gate(base, found)), "kind information by a factor of 2 or more): 1 (work");
  at(found.records[0], "work.bytes").value = 199;
  EXPECT_EQ(remarks_of(gate(base, found)), "");
  at(found.records[0], "work.bytes").unit = "B";
  EXPECT_SAYS(remarks_of(gate(base, found)), "another unit, direction or kind: 1 (work.bytes of");
}

TEST(GateSilence, SaysThatARatioHasNoIntervalAnyMore) {
  Report base = made_report();
  base.records[0].measurements.push_back(number("speedup.step", "hot", 1.5, Kind::sampled, Better::higher));
  base.records[0].measurements.back().interval = Range{1.4, 1.6};
  Report found = base;
  EXPECT_EQ(remarks_of(gate(base, base)), "");
  found.records[0].measurements.back().interval.reset();
  EXPECT_SAYS(remarks_of(gate(base, found)),
              "1 (speedup.step at hot of linear/b64_i1024_o1024/cpu/fp16/error: its interval");
}

TEST(GateSilence, HasNoWordForHowBusyTheMachineWas) {
  Report base = made_report(), found = made_report();
  for (const char* metric : {"contention.others", "timing.half_width", "device.core_clock", "speedup.control"}) {
    base.records[0].measurements.push_back(number(metric, "hot", 0.01, Kind::information, Better::neither));
    found.records[0].measurements.push_back(number(metric, "hot", 0.09, Kind::information, Better::neither));
  }
  base.records[0].measurements.push_back(number("device.slowed_by", "hot/step/power cap", 1, Kind::information));
  EXPECT_SAYS(remarks_of(gate(base, found)), "kind information by a factor of 2 or more): 1 (speedup.control at hot");
  for (const auto& [one, other] : {std::pair(base, found), std::pair(found, base)})
    EXPECT_EQ(remarks_of(gate(one, other)).find("device."), std::string::npos);
}

TEST(GateSilence, SaysWhatIsWorseWithinItsLimit) {
  Report found = made_report();
  at(found.records[0], "error.nmse").value *= 1.05;
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(remarks_of(judgement),
              "worse than the base, or below zero, within the limits: 1 (error.nmse at output of linear/");
  EXPECT_EQ(remarks_of(gate(found, made_report())), "");
  found = made_report();
  *at(found.records[0], "error.arithmetic.nmse").bound *= 2;
  EXPECT_SAYS(remarks_of(gate(made_report(), found)), "own bound became wider: 1 (error.arith");
}

// A commit that makes a new version of a case is one that may have broken it.
TEST(GateSilence, JudgesANewVersionOfACaseOnItsOwn) {
  const auto with = [](int version, const std::function<void(Record&)>& change) {
    Report found = made_report();
    found.records[0].case_version = version;
    change(found.records[0]);
    return gate(made_report(), found);
  };
  Judgement judgement = with(2, [](Record&) {});
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(all_words(judgement), "is version 2 of the case, the base has version 1: a new series");
  judgement = with(2, [](Record& one) { one.status = Status::failed, one.reason = "crash"; });
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(all_words(judgement), "is version 2 of the case, the base has version 1, and failed: crash");
  EXPECT_EQ(with(2, [](Record& one) { one.status = Status::skipped, one.reason = "no row"; }).exit_code, 1);
  judgement = with(
      2, [](Record& one) { at(one, "error.arithmetic.nmse").value = 2 * *at(one, "error.arithmetic.nmse").bound; });
  EXPECT_EQ(judgement.exit_code, 1) << "its own bound";
  judgement = with(2, [](Record& one) { at(one, "error.nmse").value = NAN; });
  EXPECT_SAYS(remarks_of(judgement),
              "numbers that are NaN in cases without a base: 1 (error.nmse at output of linear/");
  judgement = with(0, [](Record&) {});
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(all_words(judgement), "an older one");

  Report all = made_report();
  for (Record& record : all.records) record.case_version = 2;
  judgement = gate(made_report(), all);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_SAYS(all_words(judgement), "nothing was compared: every case has another version; make a new base");
}

TEST(GateSilence, NamesACopyAndAReportThatIsOlderThanTheBase) {
  Report base;
  base.run.started = "2026-11-02T00:00:00Z";
  base.records = {timed_record("linear/b4_i16_o8/cpu/fp32/throughput", 1, 24, 1)};
  Report found = base;
  EXPECT_SAYS(remarks_of(gate(base, found)), "both reports have the same start and the same times: is one a copy");
  found.records[0].measurements[0].samples[0] *= 1.001;
  EXPECT_EQ(remarks_of(gate(base, found)).find("copy of the other"), std::string::npos);
  found.run.started = "2026-11-01T00:00:00Z";
  EXPECT_SAYS(
      remarks_of(gate(base, found)),
      "new.json started before base.json (2026-11-01T00:00:00Z, 2026-11-02T00:00:00Z): are they in this order?");
}

TEST(GateSilence, NamesOtherCurvesBesideTheSameFingerprint) {
  Report base = made_report();
  base.records[0].series = {{.metric = "training.loss", .at = "", .x = {1, 2, 3}, .y = {3, 2, 1}}};
  Report found = base;
  found.records[0].series[0].y = {3, 2, 1.01};
  EXPECT_SAYS(remarks_of(gate(base, found)), "the fingerprint is that of the base, but curves differ: was a report");
}

TEST(GateSilence, NamesKernelsThatRunMoreOften) {
  Report base = made_report();
  base.records[0].kernels = {
      {.operation = "cast", .phase = "forward", .dtypes = "f32->f16", .row = "host", .calls = 2}};
  Report found = base;
  found.records[0].kernels[0].calls = 6;
  EXPECT_SAYS(remarks_of(gate(base, found)), "x 2 -> cast forward f32->f16 by host");
}

// --time shows that the step is slower; a stored time.step of one process that is not tells something else.
TEST(GateSilence, SaysBesideWhatATimeStepDiffers) {
  Report base, found;
  base.records = {timed_record("linear/b4_i16_o8/cpu/fp32/throughput", 1, 24, 1)};
  found.records = {timed_record("linear/b4_i16_o8/cpu/fp32/throughput", 1.5, 24, 2)};
  Measurement step = base.records[0].measurements[0];
  step.metric = "time.step";
  for (Report* report : {&base, &found}) report->records[0].measurements.push_back(step);
  const Judgement judgement = gate(base, found, {.time = true});
  EXPECT_SAYS(words_of(judgement, Question::time, Outcome::suspected),
              "faster than expected from time.process, which is");
}

TEST(GateSilence, NamesTimesWhoseControlIsNotOne) {
  Report base = made_report();
  Measurement control = number("speedup.control", "hot", 1.0, Kind::information);
  control.interval = {0.99, 1.01};
  base.records[0].measurements.push_back(control);
  EXPECT_EQ(remarks_of(gate(base, base)), "");
  for (const Range interval : {Range{1.01, 1.2}, Range{0.8, 0.99}, Range{0.0, HUGE_VAL}}) {
    Report found = base;
    found.records[0].measurements.back().interval = interval;
    EXPECT_SAYS(remarks_of(gate(base, found)),
                "called ok although their control, the same work twice, does not come out");
    found.records[0].status = Status::suspect, found.records[0].reason = "the control is not 1";
    EXPECT_EQ(remarks_of(gate(base, found)).find("control, the same work"), std::string::npos);
  }
}

// A bound from below, as of a cosine, becomes weaker when it falls.
TEST(GateSilence, LosesANumberWhoseLowerBoundFell) {
  Report base = made_report(), found = made_report();
  at(base.records[0], "error.cosine").bound = 0.9;
  at(found.records[0], "error.cosine").bound = 0.1;
  EXPECT_EQ(gate(base, found).exit_code, 1);
  EXPECT_EQ(gate(found, base).exit_code, 0);
}

TEST(GateSilence, NeverCallsATensorThatBecameZeroAnImprovement) {
  // The bias gradient was dropped: no error at all, over fewer values than a histogram of 50.
  Report base = made_report(), found = made_report();
  at(found.records[0], "error.nmse").value = 0;
  found.records[0].series.front().y = {4, 0}, base.records[0].series.front().y = {4, 0};
  EXPECT_TRUE(lines_with(gate(base, found), Outcome::improved).empty());
  ASSERT_EQ(lines_with(gate(base, found), Outcome::untrusted).size(), 1u);
  // Underflow: the error of the rest is smaller, and the values are gone.
  for (const char* metric : {"error.zeroed", "range.zero", "range.underflow", "range.cast_underflow"}) {
    base = made_report(), found = made_report();
    for (Report* report : {&base, &found})
      report->records[0].measurements.push_back(number(metric, "output", 0.001, Kind::bounded, Better::lower));
    at(found.records[0], "error.nmse").value = 1e-9;
    EXPECT_EQ(lines_with(gate(base, found), Outcome::improved).size(), 1u);
    at(found.records[0], metric).value = 0.0015;
    const Judgement judgement = gate(base, found);
    EXPECT_TRUE(lines_with(judgement, Outcome::improved).empty()) << metric;
    EXPECT_SAYS(words_of(judgement, Question::accuracy, Outcome::untrusted), "values that became zero improve nothing");
  }
  // All values zero: infinite headroom.
  base = made_report();
  base.records[0].measurements.push_back(number("range.headroom", "output", 12, Kind::bounded, Better::higher));
  found = base;
  at(found.records[0], "range.headroom").value = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(lines_with(gate(base, found), Outcome::improved).empty());
  EXPECT_SAYS(words_of(gate(base, found), Question::accuracy, Outcome::untrusted),
              "all values of the tensor may be zero");
}

TEST(GateSilence, DoesNotTrustAShareBelowZero) {
  Report base = made_report(), found = made_report();
  at(base.records[0], "error.nan").value = 0.5;
  at(found.records[0], "error.nan").value = -0.5;
  EXPECT_EQ(lines_with(gate(base, found), Outcome::untrusted).size(), 1u);
  EXPECT_TRUE(lines_with(gate(base, found), Outcome::improved).empty());
}

std::string remarks_under(const std::string& numbers, const std::string& more = "", const std::string& keys = "[]") {
  const std::string text = fmt::format(
      R"({{"gate_rules": 1, "keys": {{"bits": {0}, "time": {0}}}, "numbers": [{1}]{2}}})", keys, numbers, more);
  Report found = made_report();
  found.environment["libraries"]["onednn"] = "3.1.1", found.environment["shell"] = "another";
  const GateRules rules = gate_rules_from(parse_json(text, "own.json", "rules"), "own.json");
  return remarks_of(judge({"a", made_report()}, {"b", found}, rules, {}));
}

TEST(GateSilence, ListsWhatARulesFileSwitchesOff) {
  const std::string nothing = remarks_under(R"({"metric": "*", "judge": "information"})");
  EXPECT_SAYS(nothing,
              "the rules file switches off what the default rules judge: error.arithmetic.nmse (1 number), "
              "error.bias (1 number), error.cosine (1 number), error.infinite (1 number), error.nan (1 number), "
              "error.nmse (1 number), memory.peak (1 number), memory.slope (1 number)\n");
  EXPECT_SAYS(remarks_under(""), "error.nmse (1 number)");  // no rule at all
  const std::string some = R"({"metric": "error.cosine", "judge": "slack", "absolute": 2},)"
                           R"({"metric": "memory.peak", "judge": "slack", "share": 4},)"
                           R"({"metric": "memory.slope", "judge": "slack", "absent": 0},)"
                           R"({"metric": "error.nmse", "judge": "ratio", "least_ratio": 10, "squared": true},)"
                           R"({"metric": "*", "judge": "slack"})";
  EXPECT_SAYS(remarks_under(some),
              "the rules file allows more than the default rules: error.cosine (1 number), error.nmse "
              "(1 number), memory.peak (1 number)\n");
  EXPECT_SAYS(remarks_under(some), "lets numbers be missing that the default rules require: memory.slope (1 number)");
  EXPECT_EQ(remarks_under(some).find("switches off"), std::string::npos);
}

TEST(GateSilence, ListsTheBitsAndFactsThatARulesFileExcuses) {
  const std::string all = R"({"metric": "*", "judge": "slack"})";
  EXPECT_SAYS(remarks_under(all, R"(, "bits": {"skip": ["*"]})"),
              "the rules file does not compare the bits of: linear/b64_i1024_o1024/cpu/fp16/error");
  const std::string keys = remarks_under(all, "", R"(["*"])");
  EXPECT_SAYS(keys, "excuses different bits by facts that the default rules do not count: shell");
  EXPECT_SAYS(keys, "excludes times by facts that the default rules do not count: shell");
  EXPECT_SAYS(remarks_under(all, R"(, "time": {"floor": 0.5})"), "lets --time pass effects up to 50%");
}

TEST(GateSilence, HasNothingToSayAboutTheBuiltInRules) {
  for (const char* rules : {"default", "strict"})
    EXPECT_EQ(remarks_of(gate(made_report(), made_report(), {}, rules)), "") << rules;
}

// The keys of a rules file are known, so that a typing error is no rule that is missing.
TEST(GateSilence, RefusesARulesFileWithAnUnknownKey) {
  for (const char* text :
       {R"({"gate_rules": 1, "keys": {}, "numbers": [], "numbrs": []})",
        R"({"gate_rules": 1, "keys": {"bit": []}, "numbers": []})",
        R"({"gate_rules": 1, "keys": {}, "numbers": [{"metric": "a", "judge": "slack", "abs": 1}]})"})
    EXPECT_SAYS(complaint([&] { gate_rules_from(parse_json(text, "own.json", "rules"), "own.json"); }), "unknown key");
}

}  // namespace
}  // namespace halfmark::reports::gate_test
