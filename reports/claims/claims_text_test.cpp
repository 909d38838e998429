// How verdicts are written: units, narrow terminals, and what a reader must know about the numbers.
#include "reports/claims/claims_text.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reports/record/json_parser.h"

namespace halfmark::reports {
namespace {

constexpr const char* kTwoClaims =
    R"({"claims": 1, "articles": {"S1": "an article with a name of more than forty columns"},
  "entries": [
  {"id": "S1-1", "claim": "A claim of some words that do not fit into one line of a narrow terminal.", "rule": "words of a rule",
   "quick": {"/error/seeds=5": "/error/seeds=3"}, "note": "And a note.",
   "numbers": {"bytes": {"case": "resnet/b16_s16_n1_w8/{device}/amp-fp16/convergence/rate=0.01/steps=200", "metric": "m"},
               "of_curve": {"case": "x/b1/{device}/fp16/error/seeds=5", "curve": "c", "x": 2},
               "reached": {"case": "x/b1/{device}/fp16/error/seeds=5", "curve": "c", "reaches": 5}},
   "confirmed": ["bytes > 0"], "refuted": ["bytes < 0"]},
  {"id": "S1-2", "claim": "small", "rule": "w", "numbers": {"a": {"case": "y", "metric": "m"}}, "confirmed": ["a < 1"]}]})";

ClaimList two_claims(bool quick) { return claims_from(parse_json(kTwoClaims, "list.json"), "list.json", "cpu", quick); }

Report with_numbers(bool quick) {
  Report report;
  const auto add = [&](const std::string& id, std::vector<Measurement> measurements) {
    report.records.emplace_back().id = id;
    report.records.back().measurements = std::move(measurements);
  };
  Measurement bytes{.metric = "m", .value = 1536, .unit = "B"};
  bytes.interval = Range{1024, 2048};
  add("resnet/b16_s16_n1_w8/cpu/amp-fp16/convergence/rate=0.01/steps=200", {bytes});
  add(quick ? "x/b1/cpu/fp16/error/seeds=3" : "x/b1/cpu/fp16/error/seeds=5", {});
  report.records.back().series.push_back(
      {.metric = "c", .x = {1, 2, 3}, .y = {1, 4, 9}, .x_unit = "s", .y_unit = "bit"});
  add("y", {{.metric = "m", .value = 0.5}});
  return report;
}

bool has_part(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(ClaimsText, NumbersHaveTheUnitsOfTheirMeasurements) {
  const ClaimList list = two_claims(false);
  const Report report = with_numbers(false);
  const std::vector<ClaimVerdict> verdicts = judge_claims(list, report, "cpu");
  const std::string wanted = "bytes = 1.5 KiB (1 KiB to 2 KiB), of_curve = 4 bit, reached = 3 s";
  EXPECT_TRUE(has_part(claims_text(list, verdicts, {.width = 200}), wanted));
  EXPECT_TRUE(has_part(claims_text(list, verdicts, {.width = 200}), "a = 0.5\n")) << "a pure number has none";
  EXPECT_TRUE(has_part(claims_markdown(list, verdicts, report, "halfmark claims"), wanted));
  const auto numbers = claims_json(list, verdicts, report)["verdicts"][0]["numbers"];
  EXPECT_EQ(numbers[0]["unit"], "B");
  EXPECT_EQ(numbers[0]["value"], 1536) << "JSON has base units";
  EXPECT_EQ(numbers[1]["unit"], "bit");
  EXPECT_EQ(numbers[2]["unit"], "s");
}

TEST(ClaimsText, FitsANarrowTerminal) {
  const ClaimList list = two_claims(false);
  const std::vector<ClaimVerdict> verdicts = judge_claims(list, with_numbers(false), "cpu");
  const std::vector<ClaimVerdict> missing = judge_claims(list, Report(), "cpu");
  for (const size_t width : {40u, 60u, 69u, 70u, 80u, 100u})
    for (const auto* of : {&verdicts, &missing}) {
      std::istringstream lines(claims_text(list, *of, {.width = width, .all = true}, {"a remark of several words"}));
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
    }
  const std::string narrow = claims_text(list, verdicts, {.width = 40, .all = true});
  EXPECT_TRUE(has_part(narrow, "  resnet/b16_s16_n1_w8/cpu/amp-fp16/\n  convergence/rate=0.01/steps=200\n")) << narrow;
  EXPECT_TRUE(has_part(narrow, "S1-1   CONFIRMED\n  A claim of some words")) << narrow;
}

TEST(ClaimsText, SaysThatARunWasQuickOrCutShort) {
  for (const bool quick : {false, true}) {
    const ClaimList list = two_claims(quick);
    EXPECT_EQ(list.is_quick, quick);
    EXPECT_EQ(list.claims[0].is_shortened, quick);
    EXPECT_FALSE(list.claims[1].is_shortened) << "its cases are the same in a quick run";
    Report report = with_numbers(quick);
    const std::vector<ClaimVerdict> verdicts = judge_claims(list, report, "cpu");
    const auto json = claims_json(list, verdicts, report);
    EXPECT_EQ(json["quick"], quick);
    EXPECT_EQ(json["complete"], true);
    EXPECT_EQ(json["verdicts"][0]["quick"], quick);
    EXPECT_EQ(json["verdicts"][1]["quick"], false);
    EXPECT_EQ(claims_remarks(list, report).size(), quick ? 1u : 0u);
    report.run.complete = false, report.run.planned = 9;
    const std::vector<std::string> remarks = claims_remarks(list, report);
    ASSERT_EQ(remarks.size(), quick ? 2u : 1u);
    EXPECT_TRUE(has_part(remarks.back(), "the report holds 3 of 9 cases")) << remarks.back();
    EXPECT_EQ(claims_json(list, verdicts, report)["complete"], false);
    EXPECT_TRUE(has_part(claims_markdown(list, verdicts, report, "halfmark claims"), remarks.back()));
    EXPECT_TRUE(has_part(claims_text(list, verdicts, {.width = 200}, remarks), remarks.back() + "\n"));
  }
}

TEST(ClaimsText, SaysThatAQuickRunIsAsLongAsTheFullOne) {
  ClaimList list = two_claims(true);
  list.claims.erase(list.claims.begin());
  EXPECT_EQ(claims_remarks(list, with_numbers(true)),
            (std::vector<std::string>{"a quick run; these claims have the same cases in the full one"}));
}

TEST(Claims, AreNotDecidedByCasesOfAnotherVersionNorByRefusedOnes) {
  const ClaimList list = two_claims(false);
  const auto outcome = [&](const Record& changed) {
    Report report = with_numbers(false);
    report.records.back() = changed;
    return judge_claims(list, report, "cpu")[1].outcome;
  };
  const Record record = with_numbers(false).records.back();
  EXPECT_EQ(outcome(record), ClaimOutcome::confirmed);
  const ClaimVerdict refused = judge_claims(list, with_numbers(false), "cpu", {{"y", "was changed"}})[1];
  EXPECT_EQ(refused.outcome, ClaimOutcome::inconclusive);
  EXPECT_EQ(refused.reason, "y: was changed");
  Record changed;
  for (const int version : {0, 2}) {
    changed = record;
    changed.case_version = version;
    EXPECT_EQ(outcome(changed), ClaimOutcome::inconclusive) << version;
  }
  changed = record;
  changed.data.emplace().name = "digits";
  EXPECT_EQ(outcome(changed), ClaimOutcome::inconclusive);
}

}  // namespace
}  // namespace halfmark::reports
