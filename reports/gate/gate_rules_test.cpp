// Tests of reading rules and acknowledgements from JSON: one clear error line for every invalid file.
#include "reports/gate/gate_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "reports/gate/gate_testing.h"
#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/json_parser.h"
#include "reports/record/paths_testing.h"

namespace halfmark::reports::gate_test {
namespace {

void read_rules(const std::string& text) {
  gate_rules_from(parse_json(text, "r.json", "file of gate rules"), "r.json");
}

std::string about_rules(const std::string& text) {
  return complaint([&] { read_rules(text); });
}

std::string about_number_rule(const std::string& rule) {
  return about_rules(R"({"gate_rules": 1, "keys": {}, "numbers": [{"metric": "a.b", "judge": "information"}, )" + rule +
                     "]}");
}

std::string about_time_rule(const std::string& rule) {
  return about_rules(R"({"gate_rules": 1, "keys": {}, "numbers": [], "time": )" + rule + "}");
}

TEST(GateRules, ThatAreBuiltInEqualTheFilesOfTheFolder) {
  for (const char* name : {"default", "strict"}) {
    const std::string path = test_folders::source() + "/reports/gate/rules/" + name + ".json";
    EXPECT_EQ(shipped_gate_rules(name), read_file(path)) << name;
    const GateRules built_in = load_gate_rules(name), from_file = load_gate_rules(path);
    EXPECT_EQ(built_in.source, from_file.source);
    EXPECT_GT(built_in.numbers.size(), 20u);
  }
  EXPECT_FALSE(shipped_gate_rules("nonsense"));
}

TEST(GateRules, TheFirstThatMatchesApplies) {
  const GateRules rules = load_gate_rules("default");
  const Record linear = made_record("linear/b1/cpu/fp16/error"), model = made_record("mlp/b1/cpu/fp16/error");
  EXPECT_EQ(rules.rule_for(linear, number("error.nmse", "loss", 1))->elements, 1);
  EXPECT_EQ(rules.rule_for(linear, number("error.nmse", "output", 1))->bits_fail, 1);
  EXPECT_EQ(rules.rule_for(model, number("error.nmse", "output", 1))->most_elements, 25);
  EXPECT_EQ(rules.rule_for(model, number("error.arithmetic.nan", "x", 1))->judge, Judging::slack);
  EXPECT_EQ(rules.rule_for(model, number("time.step", "hot", 1, Kind::sampled))->judge, Judging::information);
  EXPECT_EQ(rules.rule_for(model, number("novel.metric", "", 1)), nullptr);
}

TEST(GateRules, KeysAreExcludedByAnExclamationMark) {
  const Keys keys = {"devices.*", "!devices.*.probed.*", "devices.cpu.probed.flushes"};
  EXPECT_TRUE(is_key(keys, "devices.cpu.threads"));
  EXPECT_FALSE(is_key(keys, "devices.cpu.probed.f16"));
  EXPECT_TRUE(is_key(keys, "devices.cpu.probed.flushes"));
  EXPECT_FALSE(is_key(keys, "machine"));
}

TEST(GateRules, RefuseFilesThatAreNotRules) {
  EXPECT_SAYS(about_rules("{\"gate_rules\": 1"), "r.json: ends in the middle");
  EXPECT_SAYS(about_rules("{,}"),
              "r.json: is not valid JSON at line 1, column 2, where , begins; is this a file of gate rules?");
  EXPECT_EQ(about_rules(""), "r.json: is empty, not a file of gate rules");
  EXPECT_SAYS(about_rules("[]"), "expected an object");
  EXPECT_SAYS(about_rules("{}"), "\"gate_rules\" is missing");
  EXPECT_SAYS(about_rules(R"({"schema": 1, "records": []})"), "\"gate_rules\" is missing");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 2, "keys": {}, "numbers": []})"), "gate_rules: is version 2");
  EXPECT_SAYS(about_rules(R"({"gate_rules": "1"})"), "gate_rules: expected a whole number");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "numbers": []})"), "\"keys\" is missing");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {}})"), "\"numbers\" is missing");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {}, "numbers": {}})"), "numbers: expected a list");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {"bits": [1]}, "numbers": []})"), "keys.bits[0]: expected text");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {"bit": []}, "numbers": []})"), "keys: unknown key \"bit\"");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {}, "numbers": [], "tyme": {}})"),
              "unknown key \"tyme\", known are gate_rules, about, keys, bits, numbers, time");
  EXPECT_SAYS(about_rules(R"({"gate_rules": 1, "keys": {}, "numbers": [], "bits": {"cases": []}})"), "\"cases\"");
  EXPECT_NO_THROW(read_rules(R"({"gate_rules": 1, "keys": {}, "numbers": []})"));
  EXPECT_SAYS(complaint([] { load_gate_rules("no/such.json"); }), "no/such.json: cannot be read");
}

TEST(GateRules, RefuseInvalidRulesWithTheNameOfTheField) {
  EXPECT_SAYS(about_number_rule("1"), "numbers[1]: expected an object");
  EXPECT_SAYS(about_number_rule(R"({"judge": "slack"})"), "numbers[1]: \"metric\" is missing");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a"})"), "numbers[1]: \"judge\" is missing");
  EXPECT_SAYS(about_number_rule(R"({"metric": "", "judge": "slack"})"), "numbers[1].metric: is empty");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slck"})"), "one of information, bound, slack, ratio");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "absolut": 1})"),
              "numbers[1]: unknown key \"absolut\"");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "elements": 1})"), "unknown key \"elements\"");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "bound", "absolute": 1})"), "unknown key \"absolute\"");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "absolute": -1})"),
              "numbers[1].absolute: -1 is out of range, it must be at least 0");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "absolute": "NaN"})"), "out of range");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "share": "1 %"})"), "numbers[1].share: expected");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "changed": 1})"), "expected true or false");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "ratio", "elements": 0})"), "numbers[1].elements: 0 is");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "ratio", "chance": 0})"), "it must be more than 0");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "ratio", "least_ratio": 0.9})"), "it must be at least 1");
  EXPECT_SAYS(about_number_rule(R"({"metric": "a", "judge": "slack", "kind": "exakt"})"), "one of exact, bounded");
}

TEST(GateRules, RefuseEffectsThatStoredTimesCannotShow) {
  EXPECT_SAYS(about_time_rule(R"({"floor": 0.03})"), "time.floor: 0.03 is out of range, it must be at least 0.1");
  EXPECT_SAYS(about_time_rule(R"({"processes": 5})"), "time.processes: 5 is out of range, it must be at least 24");
  EXPECT_SAYS(about_time_rule(R"({"margin": 0.2})"), "time.margin: 0.2 is out of range");
  EXPECT_SAYS(about_time_rule(R"({"alpha": 0})"), "time.alpha");
  // Samples of one process are not replicates, so no other metric can be selected.
  EXPECT_SAYS(about_time_rule(R"({"metric": "time.step"})"), "unknown key \"metric\"");
}

void read_entries(const std::string& entries) {
  const std::string text = R"({"acknowledgements": 1, "entries": [)" + entries + "]}";
  Acknowledgements::from_json(parse_json(text, "a.json"), "a.json");
}

std::string about_entries(const std::string& entries) {
  return complaint([&] { read_entries(entries); });
}

TEST(Acknowledgements, RefuseInvalidFilesWithOneLine) {
  const std::string rest = R"(, "reason": "r", "expires": "2026-03-01"})";
  EXPECT_NO_THROW(read_entries(R"({"case": "x", "from": "a", "to": "b")" + rest));
  EXPECT_NO_THROW(read_entries(R"({"case": "x", "metric": "m.n", "from": 1, "to": 2)" + rest));
  EXPECT_SAYS(about_entries(R"({"from": "a", "to": "b")" + rest), "a.json: entries[0]: \"case\" is missing");
  EXPECT_SAYS(about_entries(R"({"case": "", "from": "a", "to": "b")" + rest), "entries[0].case: is empty");
  EXPECT_SAYS(about_entries(R"({"case": "x", "from": 1, "to": "b")" + rest), "entries[0].from: expected text");
  EXPECT_SAYS(about_entries(R"({"case": "x", "metric": "m", "from": "a", "to": 1)" + rest), "expected a number");
  EXPECT_SAYS(about_entries(R"({"case": "x", "at": "y", "from": "a", "to": "b")" + rest), "without \"metric\"");
  EXPECT_SAYS(about_entries(R"({"case": "x", "form": "a", "to": "b")" + rest), "unknown key \"form\"");
  EXPECT_SAYS(about_entries(R"({"case": "x", "from": "a", "to": "b", "expires": "2026-03-01"})"), "\"reason\"");
  for (const char* date :
       {"tomorrow", "2026-13-01", "2026-02-30", "2026-3-1", "01.03.2026", "2026-03-0x", "2026-03- 1"})
    EXPECT_SAYS(
        about_entries(fmt::format(R"({{"case": "x", "from": "a", "to": "b", "reason": "r", "expires": "{}"}})", date)),
        "entries[0].expires: is not a date")
        << date;
  EXPECT_SAYS(complaint([] { Acknowledgements::load("no/such.json"); }), "cannot be read");
  EXPECT_SAYS(complaint([] { Acknowledgements::from_json(parse_json("{\"acknowledgements\": 3}", "a"), "a"); }),
              "version 3");
}

GateOptions acknowledging(const std::string& entries, const std::string& today = "2026-02-01") {
  GateOptions options;
  const std::string text = R"({"acknowledgements": 1, "entries": [)" + entries + "]}";
  options.acknowledgements = Acknowledgements::from_json(parse_json(text, "a.json"), "a.json");
  options.today = today;
  options.strict_bits = true;
  return options;
}

// A base, and a report whose memory grew and whose training ended worse.
struct WorseReport {
  Report base = made_report(), found;
  WorseReport() {
    base.records[0].measurements.push_back(number("training.final_loss", "", 1));
    found = base;
    at(found.records[0], "training.final_loss").value = 2;
    at(found.records[1], "memory.peak").value *= 2;
  }
};

TEST(GateRules, LeaveUndecidedWhatAnotherProcessorOrLibraryMayExplain) {
  WorseReport one;
  EXPECT_EQ(lines_with(gate(one.base, one.found), Outcome::breach).size(), 2u);
  one.found.environment["libraries"]["onednn"] = "3.1";  // pads nothing else, but rounds otherwise
  Judgement judgement = gate(one.base, one.found);
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(words_of(judgement, Question::accuracy, Outcome::inconclusive), "training.final_loss is 2, was 1");
  EXPECT_SAYS(words_of(judgement, Question::accuracy, Outcome::inconclusive),
              "undecided, because libraries.onednn differs and may explain it: measure both on one machine");
  EXPECT_SAYS(words_of(judgement, Question::memory, Outcome::breach), "memory.peak");
  one.found.environment["cpu"]["flags"] = "avx512f";
  judgement = gate(one.base, one.found);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_SAYS(words_of(judgement, Question::memory, Outcome::inconclusive), "cpu.flags differs");
  // Another order of summation: seen between SSE4.1, AVX2 and AVX-512. The derived bound holds for every order.
  at(one.found.records[0], "error.nmse").value *= 2;
  EXPECT_EQ(gate(one.base, one.found).exit_code, 3);
  Measurement& bounded = at(one.found.records[0], "error.arithmetic.nmse");
  bounded.value = 1.01 * *bounded.bound;
  EXPECT_EQ(gate(one.base, one.found).exit_code, 1);
}

TEST(GateRules, NeverDoubtANaN) {
  WorseReport one;
  one.found = one.base;
  at(one.found.records[0], "training.final_loss").value = NAN;
  one.found.environment["cpu"]["flags"] = "avx512f";
  EXPECT_EQ(gate(one.base, one.found).exit_code, 1);
}

constexpr const char* kBits =
    R"({"case": "linear/*/error", "from": "5d0c", "to": "77a1", "reason": "#12", "expires": "2026-03-01"})";

TEST(Acknowledgements, CoverDifferentBitsUntilTheyExpire) {
  Report found = made_report();
  found.records[0].fingerprint = "77a1";
  Judgement judgement = gate(made_report(), found, acknowledging(kBits));
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(words_of(judgement, Question::bits, Outcome::acknowledged), "acknowledged until 2026-03-01: #12");
  EXPECT_TRUE(judgement.remarks.empty());
  EXPECT_EQ(gate(made_report(), found, acknowledging(kBits, "2026-03-01")).exit_code, 0);

  judgement = gate(made_report(), found, acknowledging(kBits, "2026-03-02"));
  EXPECT_EQ(judgement.exit_code, 1);
  ASSERT_EQ(judgement.remarks.size(), 1u);
  EXPECT_SAYS(judgement.remarks[0], "a.json: entry 1 about linear/*/error expired on 2026-03-01");

  found.records[0].fingerprint = "ffff";  // different bits again
  judgement = gate(made_report(), found, acknowledging(kBits));
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(judgement.remarks.at(0), "covers no change; remove it");
}

TEST(Acknowledgements, CoverANumberUpToTheirValue) {
  const char* entry = R"({"case": "*/memory", "metric": "memory.peak", "at": "train", "from": 2.1e8, "to": 2.5e8,
                          "reason": "#13", "expires": "2026-03-01"})";
  Report found = made_report();
  for (const auto& [bytes, code] : {std::pair(2.4e8, 0), {2.5e8, 0}, {2.52e8, 0}, {2.6e8, 1}}) {
    at(found.records[1], "memory.peak").value = bytes;
    const Judgement judgement = gate(made_report(), found, acknowledging(entry));
    EXPECT_EQ(judgement.exit_code, code) << bytes;
    EXPECT_EQ(words_of(judgement, Question::memory, Outcome::acknowledged).empty(), code == 1) << bytes;
  }
  Report base = made_report();  // the base has changed: the entry does not cover this change
  at(base.records[1], "memory.peak").value = 2.2e8;
  at(found.records[1], "memory.peak").value = 2.4e8;
  EXPECT_EQ(gate(base, found, acknowledging(entry)).exit_code, 1);
}

TEST(Acknowledgements, NeverCoverANaNOrABrokenBound) {
  const char* entry = R"({"case": "*", "metric": "*", "from": 1e-8, "to": "Infinity",
                          "reason": "anything goes", "expires": "2026-03-01"})";
  Report found = made_report();
  at(found.records[0], "error.arithmetic.nmse").value = 1e-7;
  EXPECT_EQ(gate(made_report(), found, acknowledging(entry)).exit_code, 0);
  at(found.records[0], "error.arithmetic.nmse").value = 1e-5;
  EXPECT_EQ(gate(made_report(), found, acknowledging(entry)).exit_code, 1);
  Report base = made_report();
  base.records[0].measurements[0].value = 1e-8;
  found = base;
  found.records[0].measurements[0].value = std::nan("");
  EXPECT_EQ(gate(base, found, acknowledging(entry)).exit_code, 1);
}

}  // namespace
}  // namespace halfmark::reports::gate_test
