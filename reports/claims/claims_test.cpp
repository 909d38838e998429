#include "reports/claims/claims.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/claims/claims_text.h"
#include "reports/record/json_parser.h"

namespace halfmark::reports {
namespace {

Record record_with(const std::string& id, std::vector<Measurement> measurements) {
  Record record;
  record.id = id;
  record.measurements = std::move(measurements);
  return record;
}

ClaimList list_of(const std::string& entries, bool quick = false) {
  const std::string text = R"({"claims": 1, "articles": {"S1": "an article"}, "entries": [)" + entries + "]}";
  return claims_from(parse_json(text, "list.json"), "list.json", "cpu", quick);
}

const std::string kClaim = R"({"id": "S1-1", "claim": "text", "rule": "words",
  "quick": {"/error/seeds=5": "/error/seeds=3"},
  "numbers": {"a": {"case": "x/b1/{device}/fp16/error/seeds=5", "metric": "m"},
              "b": {"case": "x/b1/{device}/fp16/error/seeds=5", "metric": "n", "at": "p/*", "take": "max"}},
  "confirmed": ["a < b"], "refuted": ["a > 2 * b"]})";
const std::string kId = "x/b1/cpu/fp16/error/seeds=5";

ClaimVerdict verdict_with(double a, double standard_error, std::vector<double> b, Status status = Status::ok) {
  static ClaimList list;
  list = list_of(kClaim);
  Measurement of_a{.metric = "m", .value = a};
  if (standard_error > 0) of_a.standard_error = standard_error;
  std::vector<Measurement> all = {of_a};
  for (size_t i = 0; i < b.size(); ++i) all.push_back({.metric = "n", .at = "p/" + std::to_string(i), .value = b[i]});
  Report report;
  report.records.push_back(record_with(kId, all));
  report.records[0].status = status, report.records[0].reason = "because";
  return judge_claims(list, report, "cpu")[0];
}

TEST(Claims, AreConfirmedRefutedOrConditionalByTheirRule) {
  EXPECT_EQ(verdict_with(1, 0, {2, 1}).outcome, ClaimOutcome::confirmed);
  EXPECT_EQ(verdict_with(5, 0, {2, 1}).outcome, ClaimOutcome::refuted);
  EXPECT_EQ(verdict_with(3, 0, {2, 1}).outcome, ClaimOutcome::conditional);
}

TEST(Claims, AreInconclusiveIfANumberIsNotANumber) {
  const double nan = std::nan("");
  EXPECT_EQ(verdict_with(nan, 0, {2, 1}).outcome, ClaimOutcome::inconclusive);
  EXPECT_EQ(verdict_with(nan, 0, {2, 1}).reason, "a is NaN: m at '' of " + kId);
  EXPECT_EQ(verdict_with(1, 0, {nan, 2}).outcome, ClaimOutcome::inconclusive) << "the largest of NaN and 2";
  EXPECT_EQ(verdict_with(1, 0, {2, nan}).outcome, ClaimOutcome::inconclusive) << "wherever it stands";
}

TEST(Claims, OfAnErrorThatIsNoneAreInconclusive) {
  for (const double error : {-1.0, std::nan(""), HUGE_VAL}) {
    ClaimList list = list_of(kClaim);
    Report report;
    report.records.push_back(record_with(
        kId, {{.metric = "m", .value = 1, .standard_error = error}, {.metric = "n", .at = "p/0", .value = 2}}));
    EXPECT_EQ(judge_claims(list, report, "cpu")[0].outcome, ClaimOutcome::inconclusive) << error;
  }
}

TEST(Claims, AreInconclusiveWhereTheSpreadDecides) {
  EXPECT_EQ(verdict_with(1.9, 0.1, {2}).outcome, ClaimOutcome::inconclusive) << "1.7 to 2.1";
  EXPECT_EQ(verdict_with(1.9, 0.06, {2}).outcome, ClaimOutcome::inconclusive) << "1.78 to 2.02: two standard errors";
  EXPECT_EQ(verdict_with(1.9, 0.04, {2}).outcome, ClaimOutcome::confirmed) << "1.82 to 1.98";
}

TEST(Claims, NeedTheirRecordsAndNumbers) {
  const ClaimVerdict skipped = verdict_with(1, 0, {2}, Status::skipped);
  EXPECT_EQ(skipped.outcome, ClaimOutcome::not_testable);
  EXPECT_NE(skipped.reason.find("because"), std::string::npos);
  EXPECT_EQ(verdict_with(1, 0, {2}, Status::failed).outcome, ClaimOutcome::inconclusive);
  const ClaimVerdict missing = verdict_with(1, 0, {});
  EXPECT_EQ(missing.outcome, ClaimOutcome::inconclusive);
  EXPECT_NE(missing.reason.find("has no n at 'p/*'"), std::string::npos) << missing.reason;
  const ClaimList list = list_of(kClaim);
  EXPECT_EQ(judge_claims(list, Report(), "cpu")[0].outcome, ClaimOutcome::inconclusive);
}

TEST(Claims, TakeNoTimeOfAnEmulatedKernel) {
  const ClaimList list = list_of(R"({"id": "S1-1", "claim": "t", "rule": "w",
    "numbers": {"a": {"case": "x", "metric": "time.step"}}, "confirmed": ["a < 1"]})");
  Report report;
  Measurement time{.metric = "time.step", .value = 0.5, .unit = "s"};
  time.kind = Kind::sampled;
  report.records.push_back(record_with("x", {time}));
  EXPECT_EQ(judge_claims(list, report, "cpu")[0].outcome, ClaimOutcome::confirmed);
  report.records[0].status = Status::suspect, report.records[0].reason = "emulated";
  EXPECT_EQ(judge_claims(list, report, "cpu")[0].outcome, ClaimOutcome::not_testable);
}

TEST(Claims, ReadCurves) {
  const ClaimList list = list_of(R"({"id": "S1-1", "claim": "t", "rule": "w", "numbers": {
    "at_2": {"case": "x", "curve": "c", "x": 2}, "reaches": {"case": "x", "curve": "c", "reaches": 5},
    "falls": {"case": "x", "curve": "c", "falls_below": 1}, "most": {"case": "x", "curve": "c", "take": "max"}},
    "confirmed": ["at_2 == 4", "reaches == 3", "falls > 1e300", "most == 9"]})");
  Report report;
  report.records.push_back(record_with("x", {}));
  report.records[0].series.push_back({.metric = "c", .x = {1, 2, 3}, .y = {1, 4, 9}});
  EXPECT_EQ(judge_claims(list, report, "cpu")[0].outcome, ClaimOutcome::confirmed);
}

// A point of a curve has the range of its standard error, as any number.
TEST(Claims, AreInconclusiveWhereTheSpreadOfAPointOfACurveDecides) {
  const ClaimList list = list_of(R"({"id": "S1-1", "claim": "t", "rule": "w", "numbers": {
    "at_2": {"case": "x", "curve": "c", "x": 2}}, "confirmed": ["at_2 < 5"]})");
  const auto outcome_with = [&](double error, const std::string& at, std::vector<double> x) {
    Report report;
    report.records.push_back(record_with("x", {}));
    report.records[0].series = {{.metric = "c", .x = {1, 2, 3}, .y = {1, 4, 9}},
                                {.metric = "c_standard_error", .at = at, .x = std::move(x), .y = {9, error, 9}}};
    return judge_claims(list, report, "cpu")[0].outcome;
  };
  EXPECT_EQ(outcome_with(0.6, "", {1, 2, 3}), ClaimOutcome::inconclusive) << "2.8 to 5.2: two standard errors";
  EXPECT_EQ(outcome_with(0.4, "", {1, 2, 3}), ClaimOutcome::confirmed) << "3.2 to 4.8";
  EXPECT_EQ(outcome_with(0.6, "elsewhere", {1, 2, 3}), ClaimOutcome::confirmed) << "errors of another curve";
  EXPECT_EQ(outcome_with(0.6, "", {1, 2, 4}), ClaimOutcome::confirmed) << "errors of other points";
  EXPECT_EQ(outcome_with(-1, "", {1, 2, 3}), ClaimOutcome::inconclusive) << "no error is negative";
}

// A number that the list calls an estimate says nothing without its standard error.
TEST(Claims, AreInconclusiveWithoutTheStandardErrorOfAnEstimate) {
  const ClaimList list = list_of(R"({"id": "S1-1", "claim": "t", "rule": "w", "numbers": {
    "a": {"case": "x", "metric": "m", "estimate": true}}, "confirmed": ["a < 5"]},
    {"id": "S1-2", "claim": "t", "rule": "w", "numbers": {
    "b": {"case": "x", "curve": "c", "x": 2, "estimate": true}}, "confirmed": ["b < 5"]})");
  Report report;
  report.records.push_back(record_with("x", {{.metric = "m", .value = 1}}));
  report.records[0].series = {{.metric = "c", .x = {1, 2}, .y = {1, 4}}};
  const auto outcome = [&](size_t i) { return judge_claims(list, report, "cpu")[i]; };
  EXPECT_EQ(outcome(0).reason, "x: m at '' has no standard error; measure it again");
  EXPECT_EQ(outcome(1).reason, "x: the curve c at '' has no standard errors; measure it again");
  report.records[0].measurements[0].standard_error = 0.1;
  report.records[0].series.push_back({.metric = "c_standard_error", .x = {1, 2}, .y = {0.1, 0.1}});
  EXPECT_EQ(outcome(0).outcome, ClaimOutcome::confirmed);
  EXPECT_EQ(outcome(1).outcome, ClaimOutcome::confirmed);
  report.records[0].measurements[0].standard_error.reset();
  report.records[0].measurements[0].interval = Range{0.5, 1.5};
  EXPECT_EQ(outcome(0).outcome, ClaimOutcome::confirmed) << "an interval will do";
}

TEST(Claims, NameACaseThatFailedWithoutAReason) {
  const ClaimList list = list_of(kClaim);
  Report report;
  report.records.push_back(record_with(kId, {}));
  report.records[0].status = Status::failed;
  EXPECT_EQ(judge_claims(list, report, "cpu")[0].reason, kId + ": failed, without a reason");
}

TEST(Claims, AreNotTestableWithoutTheirDevice) {
  const ClaimList list = list_of(R"({"id": "S1-1", "claim": "t", "rule": "w", "needs": "cuda",
    "numbers": {"a": {"case": "x", "metric": "m"}}, "confirmed": ["a < 1"]},
    {"id": "S1-2", "claim": "t", "not_testable": "a definition"})");
  const std::vector<ClaimVerdict> verdicts = judge_claims(list, Report(), "cpu");
  EXPECT_EQ(verdicts[0].reason, "needs a device cuda, this is cpu");
  EXPECT_EQ(verdicts[1].reason, "a definition");
  EXPECT_NE(claims_text(list, verdicts, {}).find("0 of 2 claims decided: 2 NOT-TESTABLE-HERE"), std::string::npos);
}

TEST(Claims, OfAQuickRunHaveOtherEndsOfIds) {
  EXPECT_EQ(list_of(kClaim).claims[0].cases, (std::vector<std::string>{kId}));
  EXPECT_EQ(list_of(kClaim, true).claims[0].cases, (std::vector<std::string>{"x/b1/cpu/fp16/error/seeds=3"}));
}

TEST(Claims, SayWhatIsWrongWithTheirList) {
  const std::pair<const char*, const char*> table[] = {
      {R"({"id": "S1-1"})", "claim"},
      {R"({"id": "S2-1", "claim": "t", "not_testable": "x"})", "the article S2 is not listed"},
      {R"({"id": "S1-1", "claim": "t", "rule": "w"})", "has no condition"},
      {R"({"id": "S1-1", "claim": "t", "rule": "w", "confirmed": ["a < 1"]})", "there is no number 'a'"},
      {R"({"id": "S1-1", "claim": "t", "rule": "w", "confirmed": ["1 <"]})", "is expected at character 4"},
      {R"({"id": "S1-1", "claim": "t", "rule": "w", "numbers": {"a": {"metric": "m"}}})", "has no case"},
      {R"({"id": "S1-1", "claim": "t", "rule": "w", "numbers": {"a": {"case": "x"}}})", "either a metric or a curve"},
      {R"({"id": "S1-1", "claim": "t", "rulez": "w"})", "rulez"},
      {R"({"id": "S1-1", "claim": "t", "not_testable": "x", "cases": ["y"]})", "not testable"},
  };
  for (const auto& [entry, wanted] : table) try {
      list_of(entry);
      ADD_FAILURE() << entry << " was accepted";
    } catch (const ReportError& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
}

// Two claims on one number, of which exactly one can hold, and a third that nothing decides.
ClaimList contradicting(const std::string& questions) {
  const std::string text = R"({"claims": 1, "articles": {"S1": "an article"}, "questions": [)" + questions +
                           R"(], "entries": [
    {"id": "S1-1", "claim": "small", "rule": "w", "numbers": {"a": {"case": "x", "metric": "m"}},
     "confirmed": ["a < 1"], "refuted": ["a >= 1"]},
    {"id": "S1-2", "claim": "large", "rule": "w", "numbers": {"a": {"case": "x", "metric": "m"}},
     "confirmed": ["a >= 1"], "refuted": ["a < 1"]},
    {"id": "S1-3", "claim": "green", "not_testable": "a colour"}]})";
  return claims_from(parse_json(text, "list.json"), "list.json", "cpu", false);
}

TEST(Claims, OfTwoThatContradictEachOtherTheTableSaysWhichIsRight) {
  ClaimList list = contradicting(R"({"question": "How large?", "claims": ["S1-1", "S1-2", "S1-3"]})");
  for (const double a : {0.5, 2.0}) {
    Report report;
    report.records.push_back(record_with("x", {{.metric = "m", .value = a}}));
    const std::vector<ClaimVerdict> verdicts = judge_claims(list, report, "cpu");
    const std::string right = a < 1 ? "S1-1" : "S1-2", wrong = a < 1 ? "S1-2" : "S1-1";
    const std::string text = claims_text(list, verdicts, {}),
                      markdown = claims_markdown(list, verdicts, report, "halfmark claims");
    EXPECT_NE(text.find("How large? right: " + right + "; wrong: " + wrong + "; not decided: S1-3"), text.npos) << text;
    EXPECT_NE(markdown.find("| How large? | " + right + " |  | " + wrong + " | S1-3 |"), markdown.npos) << markdown;
    EXPECT_EQ(claims_json(list, verdicts, report)["questions"][0]["claims"][right], "CONFIRMED");
    list.claims.pop_back();  // of a part of the claims, a question about more is not answered
    EXPECT_EQ(claims_text(list, judge_claims(list, report, "cpu"), {}).find("How large?"), text.npos);
    list = contradicting(R"({"question": "How large?", "claims": ["S1-1", "S1-2", "S1-3"]})");
  }
}

TEST(Claims, OnASoftwareGpuSayThatItIsNone) {
  const ClaimList list = contradicting(R"({"question": "How large?", "claims": ["S1-1", "S1-2", "S1-3"]})");
  Report report;
  report.records.push_back(record_with("x", {{.metric = "m", .value = 0.5}}));
  report.records[0].device = "cuda:0";
  const std::vector<ClaimVerdict> verdicts = judge_claims(list, report, "cuda:0");
  EXPECT_EQ(claims_markdown(list, verdicts, report, "halfmark claims").find("not a GPU"), std::string::npos);
  report.records[0].numerics = "software GPU: PTX interpreted on the CPU";
  EXPECT_NE(claims_markdown(list, verdicts, report, "halfmark claims").find("\n- cuda:0 is not a GPU: software GPU"),
            std::string::npos);
}

TEST(Claims, AQuestionNamesTwoClaimsOfTheList) {
  for (const auto& [question, wanted] :
       {std::pair{R"({"question": "Q?", "claims": ["S1-1"]})", "fewer than two claims"},
        {R"({"question": "Q?", "claims": ["S1-1", "S1-9"]})", "the claim S1-9 is not listed"},
        {R"({"question": "Q?", "claims": ["S1-1", "S1-2"], "right": "S1-1"})", "right"}})
    try {
      contradicting(question);
      ADD_FAILURE() << question << " was accepted";
    } catch (const ReportError& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
}

// What is an estimate in one claim is one in all.
TEST(ShippedClaims, CallTheSameMetricsEstimates) {
  const ClaimList list = shipped_claims("cpu", false);
  std::map<std::string, bool> known;
  size_t estimates = 0;
  for (const Claim& claim : list.claims)
    for (const auto& [name, source] : claim.numbers) {
      EXPECT_EQ(known.try_emplace(source.metric, source.is_estimate).first->second, source.is_estimate)
          << claim.id << " " << name << ": " << source.metric;
      estimates += source.is_estimate;
    }
  EXPECT_GT(estimates, 30u);
}

TEST(ShippedClaims, AreReadAndMostHaveARule) {
  for (const bool quick : {false, true}) {
    const ClaimList list = shipped_claims("cpu", quick);
    size_t testable = 0;
    for (const Claim& claim : list.claims) testable += claim.not_testable.empty();
    EXPECT_GE(list.claims.size(), 87u);
    EXPECT_GE(testable, 63u);
  }
}

}  // namespace
}  // namespace halfmark::reports
