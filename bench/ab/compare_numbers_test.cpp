// Tests of the joint verdict of times and numbers.
#include "bench/ab/compare_numbers.h"

#include <gtest/gtest.h>

#include <string>

namespace halfmark::bench {
namespace {

JudgedLine line_with(Question question, Outcome outcome) {
  JudgedLine line;
  line.id = "mlp/b8_i16_h24_o10/cpu/fp32/error", line.question = question, line.outcome = outcome;
  return line;
}

Judgement judgement_with(Question question, Outcome outcome) {
  Judgement judgement;
  judgement.lines.push_back(line_with(question, outcome));
  conclude(judgement);
  require_a_comparison(judgement);
  return judgement;
}

TEST(AbNumbers, AnEmptyComparisonIsUndecided) {
  Judgement judgement;
  conclude(judgement);
  EXPECT_EQ(judgement.exit_code, 0);
  require_a_comparison(judgement);
  EXPECT_EQ(judgement.exit_code, 3);
  ASSERT_EQ(judgement.lines.size(), 1u);
  EXPECT_NE(judgement.lines[0].words.find("nothing was compared"), std::string::npos);
}

TEST(AbNumbers, CasesThatAreOnlyPresentOrRefusedAreNoComparison) {
  EXPECT_EQ(judgement_with(Question::presence, Outcome::pass).exit_code, 3);
  EXPECT_EQ(judgement_with(Question::presence, Outcome::added).exit_code, 3);
  EXPECT_EQ(judgement_with(Question::time, Outcome::information).exit_code, 3);
  EXPECT_EQ(judgement_with(Question::presence, Outcome::lost).exit_code, 1) << "a loss stays a loss";
}

TEST(AbNumbers, OneComparedNumberIsAComparison) {
  for (const Question question :
       {Question::bits, Question::accuracy, Question::reference, Question::memory, Question::time})
    EXPECT_EQ(judgement_with(question, Outcome::pass).exit_code, 0);
}

}  // namespace
}  // namespace halfmark::bench
