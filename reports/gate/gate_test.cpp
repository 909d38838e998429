// Tests of the gate on synthetic reports: presence, fingerprints and keys (every row of the table in the README),
// environments, acknowledgements, order and names.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"
#include "reports/record/paths_testing.h"
#include "reports/record/subject_facts.h"

namespace halfmark::reports::gate_test {
namespace {

std::string refusal(const Report& base, const Report& found) {
  return complaint([&] { gate(base, found); });
}

std::string all_remarks(const Judgement& judgement) {
  std::string text;
  for (const std::string& remark : judgement.remarks) text += remark + "\n";
  return text;
}

TEST(Gate, PassesAReportAgainstItself) {
  const Judgement judgement = gate(made_report(), made_report());
  EXPECT_EQ(judgement.verdict, Verdict::pass);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_TRUE(judgement.differences.empty());
  EXPECT_TRUE(judgement.remarks.empty()) << all_remarks(judgement);
  for (const JudgedLine& line : judgement.lines) EXPECT_EQ(line.outcome, Outcome::pass) << line.words;
  // presence twice, bits once (not for memory), accuracy once, reference once, memory once
  EXPECT_EQ(judgement.lines.size(), 6u);
  EXPECT_EQ(judgement.base, "base.json");
  EXPECT_EQ(judgement.candidate, "new.json");
  EXPECT_EQ(judgement.rules["rules"]["gate_rules"], 1);
}

TEST(Gate, PassesEveryFixtureAgainstItselfExceptForTheBrokenBoundInIt) {
  const std::filesystem::path fixtures = std::filesystem::path(test_folders::source()) / "reports/fixtures";
  const Report old = Report::load(fixtures / "report-1.0.json"), now = Report::load(fixtures / "report-1.1.json");
  EXPECT_EQ(gate(now, now).exit_code, 0);
  const Judgement judgement = gate(old, old);
  EXPECT_EQ(judgement.exit_code, 1);
  ASSERT_EQ(lines_with(judgement, Outcome::breach).size(), 1u);
  EXPECT_SAYS(lines_with(judgement, Outcome::breach)[0].words, "own bound");  // a NaN
}

TEST(Gate, ReportsAMissingCaseAsLost) {
  Report found = made_report();
  found.records.pop_back();
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 1);
  ASSERT_EQ(lines_with(judgement, Outcome::lost).size(), 1u);
  const JudgedLine line = lines_with(judgement, Outcome::lost)[0];
  EXPECT_EQ(line.id, "linear/b64_i1024_o1024/cpu/fp16/memory");
  EXPECT_EQ(line.question, Question::presence);
  EXPECT_EQ(line.rerun, "halfmark run --case linear/b64_i1024_o1024/cpu/fp16/memory");
}

TEST(Gate, SaysThatAReportIsPartial) {
  Report base = made_report(), found = made_report();
  base.run.complete = false, base.run.planned = 5;
  EXPECT_SAYS(all_remarks(gate(base, found)), "base.json is partial, holds 2 of 5 cases");
  EXPECT_EQ(all_remarks(gate(base, found)).find("new.json is partial"), std::string::npos);
  EXPECT_SAYS(all_remarks(gate(found, base)), "new.json is partial, holds 2 of 5 cases");
}

TEST(Gate, ComparesNumbersOfTheEnvironmentAsNumbers) {
  Report base = made_report(), found = made_report();
  base.environment["memory_bytes"] = 25274793984.0, found.environment["memory_bytes"] = int64_t{25274793984};
  EXPECT_TRUE(gate(base, found).differences.empty());
  found.environment["memory_bytes"] = int64_t{25274793985};
  EXPECT_EQ(gate(base, found).differences, std::vector<std::string>{"memory_bytes: 25274793984 -> 25274793985"});
}

TEST(Gate, CountsTheShardsOfAMergedReportInsteadOfPrintingThem) {
  Report found = made_report();
  found.environment["shards"] = {{{"shard", "1/2"}, {"machine", "a"}}, {{"shard", "2/2"}, {"machine", "b"}}};
  EXPECT_EQ(gate(made_report(), found).differences, std::vector<std::string>{"shards: absent -> 2 shards"});
}

TEST(Gate, ReportsACaseThatFailsOrIsSkippedNowAsLost) {
  for (const Status status : {Status::failed, Status::skipped}) {
    Report found = made_report();
    found.records[0].status = status;
    found.records[0].reason = "crashed with signal 11";
    found.records[0].measurements.clear();
    const Judgement judgement = gate(made_report(), found);
    EXPECT_EQ(judgement.exit_code, 1);
    EXPECT_SAYS(words_of(judgement, Question::presence, Outcome::lost), "crashed with signal 11");
  }
}

TEST(Gate, DoesNotJudgeACaseThatIsSkippedOrFailsInBoth) {
  for (const Status status : {Status::failed, Status::skipped}) {
    Report base = made_report();
    base.records[0].status = status;
    base.records[0].reason = "no fp8 here";
    const Judgement judgement = gate(base, base);
    EXPECT_EQ(judgement.exit_code, 0);
    EXPECT_SAYS(words_of(judgement, Question::presence, Outcome::information), "in both reports: no fp8 here");
  }
}

TEST(Gate, ReportsACaseThatWasSkippedAndCrashesNowAsLost) {
  Report base = made_report(), found = made_report();
  base.records[0].status = Status::skipped, base.records[0].reason = "no fp8 here";
  found.records[0].status = Status::failed, found.records[0].reason = "exit code 139";
  EXPECT_SAYS(words_of(gate(base, found), Question::presence, Outcome::lost), "exit code 139");
}

TEST(Gate, ListsNewCasesWithoutJudgingThem) {
  Report base = made_report(), skipped = made_report(), failed = made_report();
  base.records.pop_back();
  Judgement judgement = gate(base, made_report());
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_EQ(lines_with(judgement, Outcome::added).size(), 1u);
  skipped.records[0].status = Status::skipped, skipped.records[0].reason = "no row";
  judgement = gate(skipped, made_report());
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_EQ(lines_with(judgement, Outcome::added).size(), 1u);
  failed.records[0].status = Status::failed, failed.records[0].reason = "crash";
  EXPECT_EQ(lines_with(gate(failed, made_report()), Outcome::improved).size(), 1u);
}

TEST(Gate, TreatsANewVersionOfACaseAsANewCase) {
  Report found = made_report();
  found.records[0].case_version = 2;
  at(found.records[0], "error.nmse").value = 1;
  found.records[0].fingerprint = "ffff";
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(words_of(judgement, Question::presence, Outcome::added), "version 2");
}

TEST(Gate, DoesNotCompareAnotherSubjectOfTheSameName) {
  for (const std::string_view metric : kSubjectMetrics) {
    Report base = made_report(), found = made_report();
    base.records[0].measurements.push_back(number(std::string(metric), "", 1000, Kind::information, Better::neither));
    found.records[0].measurements.push_back(number(std::string(metric), "", 2000, Kind::information, Better::neither));
    const Judgement judgement = gate(base, found);
    EXPECT_EQ(judgement.exit_code, 1) << metric;
    EXPECT_SAYS(words_of(judgement, Question::presence, Outcome::lost),
                fmt::format("another subject of the same name ({} 1000 -> 2000)", metric));
    EXPECT_TRUE(std::all_of(judgement.lines.begin(), judgement.lines.end(), [](const JudgedLine& line) {
      return line.id != kCase || line.question == Question::presence;
    }));
    EXPECT_EQ(gate(found, found).exit_code, 0);
  }
}

TEST(Gate, ComparesWithReportsThatDoNotDescribeTheSubject) {
  Report found = made_report();
  found.records[0].measurements.push_back(number("work.input", "", 2000, Kind::information, Better::neither));
  EXPECT_EQ(gate(made_report(), found).exit_code, 0);
  EXPECT_EQ(gate(found, made_report()).exit_code, 0);
  EXPECT_SAYS(words_of(gate(made_report(), found), Question::bits, Outcome::pass), "the same bits");
  // The bytes of a forward pass belong to the policy, not to the subject.
  found.records[0].measurements.back().metric = "work.bytes";
  Report other = found;
  other.records[0].measurements.back().value = 4000;
  EXPECT_EQ(gate(other, found).exit_code, 0);
}

TEST(Gate, AddsARemarkForACaseThatIsSuspectNowAndJudgesItsNumbers) {
  Report found = made_report();
  found.records[0].status = Status::suspect, found.records[0].reason = "emulated arithmetic";
  Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(all_remarks(judgement), "suspect now: emulated arithmetic");
  at(found.records[0], "error.nan").value = 0.5;
  EXPECT_EQ(gate(made_report(), found).exit_code, 1);
}

// The rows of the table about fingerprints in the README, in its order.
TEST(Gate, PassesTheSameBitsUnderTheSameKeys) {
  EXPECT_SAYS(words_of(gate(made_report(), made_report()), Question::bits, Outcome::pass), "the same bits");
}

TEST(Gate, ReportsDifferentBitsUnderTheSameKeysAsChanged) {
  Report found = made_report();
  found.records[0].fingerprint = "77a1";
  found.records[0].kernels = {{"matmul", "forward", "f16,f16->f16", "onednn", "real", 1, {}}};
  Report base = made_report();
  base.records[0].kernels = {{"matmul", "forward", "f16,f16->f16", "upcast", "real", 1, {}}};
  Judgement judgement = gate(base, found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(words_of(judgement, Question::bits, Outcome::changed), "5d0c -> 77a1");
  EXPECT_SAYS(words_of(judgement, Question::bits, Outcome::changed), "upcast -> onednn");
  judgement = gate(base, found, {.strict_bits = true});
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_EQ(word_of(judgement.lines[0].question, judgement.lines[0].outcome), "ACCURACY_FAIL");
}

TEST(Gate, PassesDifferentBitsUnderDifferentKeys) {
  Report found = made_report();
  found.records[0].fingerprint = "77a1";
  found.environment["libraries"]["onednn"] = "3.1.1";
  EXPECT_EQ(gate(made_report(), found, {.strict_bits = true}).exit_code, 3) << "they were not compared";
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(words_of(judgement, Question::bits, Outcome::pass), "libraries.onednn");
  ASSERT_EQ(judgement.differences.size(), 1u);
  EXPECT_EQ(judgement.differences[0], "libraries.onednn: 2.6.3 -> 3.1.1");
}

TEST(Gate, FailsABrokenBoundForAllKeysAndBits) {
  for (const bool other_key : {false, true}) {
    Report found = made_report();
    if (other_key) found.environment["libraries"]["onednn"] = "3.1.1", found.records[0].fingerprint = "77a1";
    at(found.records[0], "error.arithmetic.nmse").value = 2e-6;
    const Judgement judgement = gate(made_report(), found);
    EXPECT_EQ(judgement.exit_code, 1);
    const JudgedLine line = lines_with(judgement, Outcome::breach).at(0);
    EXPECT_EQ(line.id, kCase);
    EXPECT_EQ(line.metric, "error.arithmetic.nmse");
    EXPECT_EQ(line.at, "output");
    EXPECT_EQ(line.found, 2e-6);
    EXPECT_EQ(line.limit, 1e-6);
    EXPECT_EQ(line.rerun, std::string("halfmark run --case ") + kCase);
    EXPECT_EQ(word_of(line.question, line.outcome), "ACCURACY_FAIL");
  }
}

TEST(Gate, FailsABoundThatWasAlreadyBroken) {
  Report both = made_report();
  at(both.records[0], "error.arithmetic.nmse").value = 2e-6;
  EXPECT_EQ(gate(both, both).exit_code, 1);
}

TEST(Gate, FailsMoreNaNsOrInfinitiesThanInTheBase) {
  for (const char* metric : {"error.nan", "error.infinite"}) {
    Report base = made_report(), found = made_report();
    at(base.records[0], metric).value = 0.25;
    at(found.records[0], metric).value = 0.25;
    found.environment["libraries"]["onednn"] = "3.1.1";
    EXPECT_EQ(gate(base, found).exit_code, 0);
    at(found.records[0], metric).value = 0.2500001;
    EXPECT_EQ(gate(base, found).exit_code, 1);
    EXPECT_EQ(lines_with(gate(found, base), Outcome::improved).size(), 1u);
  }
}

TEST(Gate, DoesNotTrustTensorsOfNearlyAllZeros) {
  Report both = made_report();
  both.records[0].measurements.push_back(number("range.zero", "activation/relu", 0.95, Kind::bounded, Better::neither));
  both.records[0].measurements.push_back(number("range.zero", "activation/fc", 0.5, Kind::bounded, Better::neither));
  const Judgement judgement = gate(both, both);
  EXPECT_EQ(words_of(judgement, Question::accuracy, Outcome::pass), "");
  const auto lines = lines_with(judgement, Outcome::untrusted);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at, "activation/relu");
}

TEST(Gate, ComparesBitsOnlyIfBothAreProvedDeterministic) {
  for (const Determinism unproved : {Determinism{0, 0}, Determinism{1, 0}, Determinism{5, 2}})
    for (const bool in_base : {true, false}) {
      Report base = made_report(), found = made_report();
      found.records[0].fingerprint = "77a1";
      (in_base ? base : found).records[0].determinism = unproved;
      const Judgement judgement = gate(base, found);
      const bool lost = !in_base && unproved.differing > 0;
      EXPECT_EQ(gate(base, found, {.strict_bits = true}).exit_code, lost ? 1 : 3);
      EXPECT_EQ(judgement.exit_code, lost ? 1 : 0);
      EXPECT_SAYS(words_of(judgement, Question::bits, lost ? Outcome::breach : Outcome::information),
                  lost ? "not deterministic any more: 2 of 5 processes" : "--processes 2");
    }
}

TEST(Gate, ReportsAMissingFingerprintAsLostAndANewOneNotAtAll) {
  Report without = made_report();
  for (Record& record : without.records) record.fingerprint = "";
  const Judgement lost = gate(made_report(), without);
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_SAYS(words_of(lost, Question::bits, Outcome::lost), "was 5d0c and is missing now");
  for (const JudgedLine& line : gate(without, made_report()).lines) EXPECT_NE(line.question, Question::bits);
}

TEST(Gate, IgnoresKeysOfDevicesThatTheCaseDoesNotUse) {
  Report found = made_report();
  found.environment["devices"]["sim:hopper"]["stands_for"] = "H200";
  found.records[0].fingerprint = "77a1";
  EXPECT_FALSE(words_of(gate(made_report(), found), Question::bits, Outcome::changed).empty());
  found.environment["devices"]["cpu"]["threads"] = "4";
  EXPECT_TRUE(words_of(gate(made_report(), found), Question::bits, Outcome::changed).empty());
}

// How a matmul adds is measured with the code under test, so a difference must not excuse different bits.
TEST(Gate, DoesNotUseProbedFactsAsKeys) {
  Report found = made_report();
  found.environment["devices"]["cpu"]["probed"] = {{"probe.f32>f32", "another tree"}};
  found.records[0].fingerprint = "77a1";
  EXPECT_FALSE(words_of(gate(made_report(), found), Question::bits, Outcome::changed).empty());
}

TEST(Gate, GivesNoVerdictOnOtherDataAndNamesTheCommandOnThoseOfTheBase) {
  const DataOrigin digits{
      .kind = "mnist", .name = "digits", .hash = "3f1c", .hashed = "contents", .normalisation = "", .unit = ""};
  Report base = made_report(), found = made_report();
  base.records[0].data = digits, found.records[0].data = digits;
  base.records[0].repro = "halfmark run --case x --data /home/digits";
  EXPECT_EQ(gate(base, found).exit_code, 0);
  found.records[0].data->hash = "90ab";
  const Judgement judgement = gate(base, found);
  EXPECT_EQ(judgement.exit_code, 3);
  const std::vector<JudgedLine> lines = lines_with(judgement, Outcome::inconclusive);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0].words,
      "was measured on other data than the base (data mnist 3f1c -> mnist 90ab), so nothing is compared; run it on "
      "the data of the base, or make a new base");
  EXPECT_EQ(lines[0].rerun, base.records[0].repro);
  found.records[0].data.reset();
  EXPECT_SAYS(lines_with(gate(base, found), Outcome::inconclusive).at(0).words, "(data mnist 3f1c -> drawn)");
  found.records[0].definition = "another", base.records[0].definition = "one";
  EXPECT_EQ(gate(base, found).exit_code, 1) << "another subject is a lost case, whatever its data";
}

TEST(Gate, UsesTheSeedAsAKey) {
  Report found = made_report();
  found.run.seed = 7;
  found.records[0].fingerprint = "77a1";
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 3) << "the data are different, so the mathematics cannot be judged";
  EXPECT_TRUE(lines_with(judgement, Outcome::breach).empty());
  EXPECT_EQ(judgement.differences.at(0), "run.seed: 0 -> 7");
}

TEST(Gate, ReportsADifferentEnvironmentAsSuspectOnlyOnRequest) {
  Report found = made_report();
  found.environment["cpu"]["model"] = "Example 9001";
  EXPECT_EQ(gate(made_report(), found).exit_code, 0);
  Judgement judgement = gate(made_report(), found, {.same_environment = true});
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(judgement.verdict, Verdict::environment_suspect);
  EXPECT_SAYS(words_of(judgement, Question::presence, Outcome::environment_suspect), "cpu.model");
  EXPECT_EQ(gate(made_report(), made_report(), {.same_environment = true}).exit_code, 0);

  // A suspect environment does not hide a lost case or a broken limit.
  at(found.records[0], "error.nan").value = 0.5;
  EXPECT_EQ(gate(made_report(), found, {.same_environment = true}).exit_code, 1);
  at(found.records[0], "error.nan").value = 0;
  found.records.pop_back();
  EXPECT_EQ(gate(made_report(), found, {.same_environment = true}).exit_code, 1);
}

TEST(Gate, RefusesReportsThatCannotBeCompared) {
  Report twice = made_report();
  twice.records.push_back(twice.records[0]);
  EXPECT_SAYS(refusal(twice, made_report()), "base.json: the case linear/");
  EXPECT_SAYS(refusal(made_report(), twice), "new.json: the case linear/");
  for (const double seconds : {std::nan(""), 0.0, -1e-3, HUGE_VAL}) {
    Report timed = made_report();
    timed.records.push_back(timed_record("linear/b/cpu/fp32/throughput", 1, 3, 1));
    EXPECT_NO_THROW(gate(timed, timed));
    timed.records.back().measurements[0].samples[1] = seconds;
    EXPECT_SAYS(refusal(made_report(), timed), "new.json: time.process at hot");
    timed.records.back().measurements = {number("time.step", "hot", seconds, Kind::sampled)};
    EXPECT_SAYS(refusal(timed, made_report()), "base.json: time.step at hot");
  }
}

TEST(Gate, ReportsThatThereIsNothingInCommon) {
  Report found = made_report();
  for (Record& record : found.records) record.id = "x" + record.id;
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(all_remarks(judgement), "no measured case in common");
  EXPECT_SAYS(refusal(Report{}, found), "base.json: has no records");
}

// The exit code is not a count, which a shell would truncate to 8 bits.
TEST(Gate, ExitsWithOneForTwoHundredAndFiftySixRegressions) {
  Report base, found;
  for (int i = 0; i < 256; ++i) {
    base.records.push_back(made_record(fmt::format("linear/b{}/cpu/fp16/error", i)));
    base.records.back().measurements = {number("error.nan", "output", 0)};
    found.records.push_back(base.records.back());
    found.records.back().measurements[0].value = 1;
  }
  const Judgement judgement = gate(base, found);
  EXPECT_EQ(lines_with(judgement, Outcome::breach).size(), 256u);
  EXPECT_EQ(judgement.exit_code, 1);
}

TEST(Gate, TurnsRegressionsIntoImprovementsWhenTheSidesAreSwapped) {
  Report base = made_report(), found = made_report();
  at(found.records[0], "error.nmse").value = 2e-6;
  at(found.records[0], "error.cosine").value = 0.9;
  at(found.records[0], "error.bias").value = 0.5;
  at(found.records[1], "memory.peak").value = 210 << 20;
  const Judgement there = gate(base, found), back = gate(found, base);
  const auto broken = lines_with(there, Outcome::breach), better = lines_with(back, Outcome::improved);
  ASSERT_EQ(broken.size(), 4u);
  ASSERT_EQ(better.size(), 4u);
  for (size_t i = 0; i < broken.size(); ++i) {
    EXPECT_EQ(broken[i].metric, better[i].metric);
    EXPECT_EQ(broken[i].found, better[i].base);
  }
  EXPECT_EQ(there.exit_code, 1);
  EXPECT_EQ(back.exit_code, 0);
}

TEST(Gate, GivesTheSameVerdictsForEveryOrderOfCases) {
  Report base = made_report(), found = made_report();
  at(found.records[0], "error.nmse").value = 2e-6;
  const Judgement one = gate(base, found);
  std::reverse(found.records.begin(), found.records.end());
  for (Record& record : found.records) std::reverse(record.measurements.begin(), record.measurements.end());
  const Judgement other = gate(base, found);
  ASSERT_EQ(one.lines.size(), other.lines.size());
  for (size_t i = 0; i < one.lines.size(); ++i) {
    EXPECT_EQ(one.lines[i].id, other.lines[i].id);
    EXPECT_EQ(one.lines[i].words, other.lines[i].words);
  }
}

TEST(Gate, AcceptsCaseNamesWithAnyCharacter) {
  for (const std::string id :
       {"a/b/\"quoted\" 'id'/x", "ä/漢字/\xF0\x9F\x98\x80", "line\nbreak\tand\x01", "*/[a]?/\\", "", "{}{0}%s"}) {
    Report base, found;
    base.records = {made_record(id)};
    base.records[0].measurements = {number("error.nan", "at\n{}", 0)};
    found = base;
    found.records[0].measurements[0].value = 1;
    found.records[0].reason = "why\nnot";
    const Judgement judgement = gate(base, found);
    ASSERT_EQ(lines_with(judgement, Outcome::breach).size(), 1u) << id;
    EXPECT_EQ(judgement.lines[0].id, id);
    EXPECT_EQ(judgement.lines[0].words.find('\n'), std::string::npos);
    found.records.push_back(found.records[0]);
    refusal(base, found);  // in one line
  }
}

}  // namespace
}  // namespace halfmark::reports::gate_test
