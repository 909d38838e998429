// Tests of the judgement of the fp64 reference's own numbers.
#include "reports/gate/gate_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"

namespace halfmark::reports::gate_test {
namespace {

Measurement reference(const std::string& metric, const std::string& at, double value) {
  return number("reference." + metric, at, value, Kind::bounded, Better::neither);
}

// The error record alone, with numbers of its fp64 reference.
Report with_reference() {
  Report report = made_report();
  report.records.resize(1);
  std::vector<Measurement>& numbers = report.records[0].measurements;
  std::erase_if(numbers, is_reference);
  numbers.push_back(reference("norm", "output", 8));
  numbers.push_back(reference("projection", "output", -0.5));
  numbers.push_back(reference("norm", "gradient/bias", 1e-17));  // zero but for rounding
  numbers.push_back(reference("projection", "gradient/bias", 1e-17));
  numbers.push_back(reference("norm", "gradient/weight", 0.25));
  numbers.push_back(reference("projection", "gradient/weight", 0.125));
  numbers.push_back(reference("loss", "", 2.25));
  numbers.push_back(reference("all", "", 12.5));
  return report;
}

Measurement& place(Report& report, const std::string& metric, const std::string& where) {
  for (Measurement& one : report.records[0].measurements)
    if (one.metric == "reference." + metric && one.at == where) return one;
  throw ReportError("no such place");
}

void remove(Report& report, const std::string& metric, const std::string& where) {
  std::erase_if(report.records[0].measurements,
                [&](const Measurement& one) { return one.metric == "reference." + metric && one.at == where; });
}

JudgedLine line_of(const Judgement& judgement) {
  for (const JudgedLine& line : judgement.lines)
    if (line.question == Question::reference) return line;
  return {};
}

TEST(GateReference, PassesTheSameNumbersAndSaysHowMany) {
  const Judgement judgement = gate(with_reference(), with_reference());
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_EQ(line_of(judgement).outcome, Outcome::pass);
  EXPECT_SAYS(line_of(judgement).words, "8 numbers");
}

TEST(GateReference, SaysNothingAboutRecordsWithoutSuchNumbers) {
  for (const JudgedLine& line : gate(made_report(), made_report()).lines)
    EXPECT_EQ(line.question == Question::reference && line.id != kCase, false) << line.id;
}

TEST(GateReference, BreaksWhenANumberChangesByMoreThanRounding) {
  Report found = with_reference();
  place(found, "norm", "output").value *= 1 + 1e-8;
  place(found, "all", "").value = 12.75;
  const Judgement judgement = gate(with_reference(), found);
  EXPECT_EQ(judgement.exit_code, 1);
  const JudgedLine line = line_of(judgement);
  EXPECT_EQ(word_of(line.question, line.outcome), "REFERENCE_CHANGED");
  EXPECT_EQ(line.at, "output");
  EXPECT_SAYS(line.words, "the mathematics changed");
  EXPECT_SAYS(line.words, "acknowledge reference.all from 12.5 to 12.75");
}

TEST(GateReference, AllowsTheRoundingOfFp64) {
  Report found = with_reference();
  place(found, "norm", "output").value *= 1 + 1e-12;
  place(found, "projection", "output").value += 1e-10;  // relative to the norm, not to the cancelled sum
  place(found, "loss", "").value *= 1 - 1e-12;
  place(found, "norm", "gradient/bias").value = 3e-17;  // noise, relative to the largest gradient
  place(found, "projection", "gradient/bias").value = -2e-17;
  EXPECT_EQ(gate(with_reference(), found).exit_code, 0) << line_of(gate(with_reference(), found)).words;
}

TEST(GateReference, TheSumOfAllAndTheDefinitionsAreJudgedToo) {
  Report found = with_reference();
  place(found, "all", "").value += 1e-3;
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  remove(found, "all", "");
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  found = with_reference();
  place(found, "loss", "").unit = "B";
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  EXPECT_SAYS(line_of(gate(with_reference(), found)).words, "cannot be compared");
}

TEST(GateReference, FindsAGradientThatIsZeroNowAndOneThatWasZero) {
  Report found = with_reference();
  place(found, "norm", "gradient/weight").value = 0;
  place(found, "projection", "gradient/weight").value = 0;
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  EXPECT_EQ(gate(found, with_reference()).exit_code, 1);
}

TEST(GateReference, ANaNIsAChangeAndTwoNaNsProveNothing) {
  Report found = with_reference();
  place(found, "loss", "").value = NAN;
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  EXPECT_EQ(gate(found, with_reference()).exit_code, 1);
  EXPECT_EQ(gate(found, found).exit_code, 3);
  EXPECT_SAYS(line_of(gate(found, found)).words, "proves nothing");
  place(found, "loss", "").value = std::numeric_limits<double>::infinity();
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  EXPECT_EQ(gate(found, found).exit_code, 3);
}

TEST(GateReference, AMissingPlaceIsLostAndAnAddedOneIsNotJudged) {
  Report found = with_reference();
  remove(found, "projection", "gradient/weight");
  EXPECT_EQ(line_of(gate(with_reference(), found)).outcome, Outcome::lost);
  EXPECT_SAYS(line_of(gate(with_reference(), found)).words, "reference.projection at gradient/weight");
  EXPECT_EQ(gate(with_reference(), found).exit_code, 1);
  EXPECT_EQ(gate(found, with_reference()).exit_code, 3);
  EXPECT_SAYS(line_of(gate(found, with_reference())).words, "not judged; make a new base");
  // A missing place does not hide a change elsewhere, nor the reverse.
  place(found, "norm", "output").value = 9;
  EXPECT_EQ(line_of(gate(with_reference(), found)).outcome, Outcome::breach);
  EXPECT_SAYS(line_of(gate(with_reference(), found)).words, "missing now: reference.projection at gradient/weight");
}

TEST(GateReference, RecordsWithoutNumbersOnOneSideDoNotPass) {
  Report without = with_reference();
  std::erase_if(without.records[0].measurements, is_reference);
  EXPECT_EQ(gate(with_reference(), without).exit_code, 1);
  EXPECT_EQ(gate(without, with_reference()).exit_code, 3);
  EXPECT_SAYS(line_of(gate(without, with_reference())).words, "the mathematics was not judged");
}

TEST(GateReference, ReportsOfDifferentSeedsAreNotComparable) {
  Report found = with_reference();
  found.run.seed = 1;
  EXPECT_EQ(gate(with_reference(), found).exit_code, 3);
  EXPECT_SAYS(line_of(gate(with_reference(), found)).words, "the seed is 1, was 0");
}

TEST(GateReference, RulesCannotSwitchItOff) {
  Report found = with_reference();
  place(found, "loss", "").value = 2.5;
  auto rules = load_gate_rules("default");
  NumberRule all;
  all.metric = "*";
  rules.numbers.insert(rules.numbers.begin(), all);
  EXPECT_EQ(judge({"base.json", with_reference()}, {"new.json", found}, rules, {}).exit_code, 1);
}

Acknowledgements acknowledged(double from, double to, const std::string& expires = "2026-03-01") {
  return Acknowledgements::from_json({{"acknowledgements", 1},
                                      {"entries",
                                       {{{"case", "linear/*/error"},
                                         {"metric", "reference.all"},
                                         {"from", from},
                                         {"to", to},
                                         {"reason", "#124: epsilon as in the paper"},
                                         {"expires", expires}}}}},
                                     "ack.json");
}

TEST(GateReference, IsMissedIfNeitherReportHasIt) {
  Report report = with_reference();
  EXPECT_TRUE(gate(report, report).remarks.empty());
  std::erase_if(report.records[0].measurements, is_reference);
  const Judgement judgement = gate(report, report);
  EXPECT_EQ(judgement.exit_code, 0);
  ASSERT_EQ(judgement.remarks.size(), 1u);
  EXPECT_SAYS(judgement.remarks[0],
              "the mathematics was not judged, because neither report has numbers of the fp64 reference (reference.*): "
              "1 (linear");
}

TEST(GateReference, AnIntendedChangeIsAcknowledged) {
  Report found = with_reference();
  place(found, "loss", "").value = 2.5;
  place(found, "all", "").value = 12.75;
  GateOptions options;
  options.today = "2026-02-01";
  options.acknowledgements = acknowledged(12.5, 12.75);
  Judgement judgement = gate(with_reference(), found, options);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_EQ(line_of(judgement).outcome, Outcome::acknowledged);
  EXPECT_SAYS(line_of(judgement).words, "#124");
  EXPECT_TRUE(judgement.remarks.empty());
  // Another change, an expired entry, a missing place and a NaN are not covered.
  options.acknowledgements = acknowledged(12.5, 12.7501);
  EXPECT_EQ(gate(with_reference(), found, options).exit_code, 1);
  options.acknowledgements = acknowledged(12.5, 12.75, "2026-01-31");
  EXPECT_EQ(gate(with_reference(), found, options).exit_code, 1);
  options.acknowledgements = acknowledged(12.5, 12.75);
  Report less = found;
  remove(less, "norm", "output");
  EXPECT_EQ(gate(with_reference(), less, options).exit_code, 1);
  place(found, "loss", "").value = NAN;
  EXPECT_EQ(gate(with_reference(), found, options).exit_code, 1);
}

TEST(GateReference, OneNumberOfTheReferenceCannotBeAcknowledgedAlone) {
  const nlohmann::ordered_json json = {{"acknowledgements", 1},
                                       {"entries",
                                        {{{"case", "*"},
                                          {"metric", "reference.loss"},
                                          {"from", 1},
                                          {"to", 2},
                                          {"reason", "r"},
                                          {"expires", "2026-03-01"}}}}};
  EXPECT_SAYS(complaint([&] { Acknowledgements::from_json(json, "ack.json"); }), "reference.all");
}

}  // namespace
}  // namespace halfmark::reports::gate_test
