// The outputs that other programs read line by line: CSV, and the judgement as JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "reports/outputs/csv.h"
#include "reports/outputs/judgement_json.h"
#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

std::string last_row(JudgedLine line) {
  Judgement judgement;
  judgement.lines = {std::move(line)};
  const std::string text = csv_of(judgement);
  return text.substr(text.find("\r\n") + 2);
}

TEST(JudgementCsv, QuotesOnlyWhereItMust) {
  EXPECT_EQ(last_row(judged("a/b", Question::bits, Outcome::changed, "plain")),
            "a/b,bits,CHANGED,,,,,,1,,,,,,plain,halfmark run --case a/b\r\n");
  EXPECT_EQ(last_row(judged("a,\"b\"\n", Question::bits, Outcome::pass)),
            "\"a,\"\"b\"\"\n\",bits,PASS,,,,,,1,,,,,,,\"halfmark run --case a,\"\"b\"\"\n\"\r\n");
}

TEST(JudgementCsv, GuardsNothingElse) {
  EXPECT_TRUE(last_row(judged("=SUM(A1)", Question::bits, Outcome::pass)).starts_with("=SUM(A1),"));
}

TEST(JudgementCsv, WritesNumbersThatReadBackAsTheSameDoubles) {
  const double third = 1.0 / 3;
  const std::string row = last_row(with_numbers(judged("a", Question::accuracy, Outcome::breach), "error.nmse",
                                                "output", third, INFINITY, -INFINITY, "1"));
  EXPECT_TRUE(row.starts_with("a,accuracy,ACCURACY_FAIL,error.nmse,output,0.3333333333333333,Infinity,-Infinity,1,"))
      << row;
}

TEST(JudgementCsv, TellsANumberThatIsNotThereFromNaN) {
  const JudgedLine measured =
      with_numbers(judged("a", Question::accuracy, Outcome::breach), "error.nmse", "", 1, NAN, NAN, "1");
  EXPECT_TRUE(last_row(measured).starts_with("a,accuracy,ACCURACY_FAIL,error.nmse,,1,NaN,,1,")) << last_row(measured);
  EXPECT_TRUE(last_row(judged("a", Question::presence, Outcome::lost)).starts_with("a,presence,CASE_LOST,,,,,,1,"));
}

TEST(JudgementCsv, HoldsTheDecisionAboutATime) {
  const std::string text = csv_of(sample_judgement());
  EXPECT_NE(text.find(",s,1.061,1.052,1.07,24,1.3e-06,"), std::string::npos) << text;
}

TEST(JudgementJson, EchoesVerdictRulesAndCounts) {
  const auto json = to_json(sample_judgement());
  EXPECT_EQ(json["schema"], "gate/1");
  EXPECT_EQ(json["verdict"], "REGRESSION");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["config"]["time"]["floor"], 0.03);
  EXPECT_EQ(json["counts"]["lines"], 14);
  EXPECT_EQ(json["counts"]["cases"], 12);
  EXPECT_EQ(json["counts"]["regression"], 2);
  EXPECT_EQ(json["counts"]["accuracy_fail"], 1);
  EXPECT_EQ(json["counts"]["pass"], 2);
  EXPECT_EQ(json["env"]["differences"][0], "driver: 550.54 -> 560.35");
  EXPECT_EQ(json["validity"]["slow_fast"][0], 2);
}

TEST(JudgementJson, WritesNumbersThatAreNotFiniteAsStrings) {
  Judgement judgement;
  judgement.lines = {
      with_numbers(judged("a", Question::accuracy, Outcome::breach), "error.nmse", "", -INFINITY, INFINITY, NAN, "1")};
  const auto line = to_json(judgement)["cases"][0];
  EXPECT_EQ(line["base"], "-Infinity");
  EXPECT_EQ(line["found"], "Infinity");
  EXPECT_EQ(line["limit"], "NaN");
}

TEST(JudgementJson, PutsTheDecisionBesideItsLine) {
  const auto json = to_json(sample_judgement());
  const auto line = std::find_if(json["cases"].begin(), json["cases"].end(), [](const auto& one) {
    return one["case"] == "mlp/b32_i64_h128_o10/cpu/bf16/throughput";
  });
  ASSERT_NE(line, json["cases"].end());
  EXPECT_EQ((*line)["timing"]["stage"], "extended");
  EXPECT_EQ((*line)["timing"]["n_pairs"], 48);
  EXPECT_EQ((*line)["timing"]["ci95"][1], 1.049);
  EXPECT_FALSE(json["cases"].back().contains("timing"));
}

TEST(JudgementJson, SaysNothingOfTimesThatWereNotJudged) {
  Judgement judgement = sample_judgement();
  judgement.timing = {};
  EXPECT_FALSE(to_json(judgement).contains("validity"));
}

}  // namespace
}  // namespace halfmark::reports
