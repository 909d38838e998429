#include "reports/claims/expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "reports/record/error.h"

namespace halfmark::reports {
namespace {

const Numbers kNumbers = {
    {"a", {2, {2, 2}}}, {"b", {3, {2.5, 3.5}}}, {"bad", {std::nan(""), {}}}, {"c_1", {10, {9, 11}}}};

TEST(Expressions, FollowTheUsualPrecedence) {
  const std::pair<const char*, double> table[] = {
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"8 - 2 - 1", 5},
      {"8 / 2 / 2", 2},
      {"-a + b", 1},
      {"a - -b", 5},
      {"abs(a - b)", 1},
      {"min(a, b, 1)", 1},
      {"max(a, b)", 3},
      {"log2(8) + sqrt(4)", 5},
      {"1e-3 * 1000", 1},
      {"c_1 / a", 5},
      {"a < b and b < c_1", 1},
      {"a > b or a == 2", 1},
      {"a + 1 >= b", 1},
      {"a != 2", 0},
      {"1 < 2 and 2 < 1 or 1 < 2", 1},
  };
  for (const auto& [text, expected] : table) EXPECT_EQ(Expression(text).value(kNumbers), expected) << text;
  EXPECT_EQ(Expression("b + a * b").names(), (std::vector<std::string>{"b", "a"}));
}

TEST(Expressions, AreOpenWhereTheRangesOfTheirNumbersDecideBothWays) {
  EXPECT_EQ(Expression("b > a").holds(kNumbers), Truth::yes);
  EXPECT_EQ(Expression("b > 3.2").holds(kNumbers), Truth::open);
  EXPECT_EQ(Expression("b > 4").holds(kNumbers), Truth::no);
  EXPECT_EQ(Expression("c_1 - b > 7").holds(kNumbers), Truth::open) << "9 - 3.5 and 11 - 2.5";
  EXPECT_EQ(Expression("c_1 - b > 5").holds(kNumbers), Truth::yes);
}

TEST(Expressions, AreOpenWhereANanWouldDecide) {
  for (const char* text : {"bad > 1", "bad < 1", "bad == 1", "bad != 1", "bad <= 1", "bad >= 1", "min(bad, a) > 0",
                           "min(a, bad) > 0", "max(a, bad) > 0", "bad > 1 or a > 5", "a > 1 and bad > 1"})
    EXPECT_EQ(Expression(text).holds(kNumbers), Truth::open) << text;
  for (const char* text : {"bad > 1 or a > 1", "a > 1 or bad > 1", "finite(bad) == 0", "finite(a) == 1"})
    EXPECT_EQ(Expression(text).holds(kNumbers), Truth::yes) << text;
  for (const char* text : {"bad > 1 and a > 5", "a > 5 and bad > 1", "finite(bad) == 1"})
    EXPECT_EQ(Expression(text).holds(kNumbers), Truth::no) << text;
}

TEST(Expressions, SayWhereTheyAreWrong) {
  const std::pair<const char*, const char*> table[] = {
      {"", "a number, a name or ( is expected at character 1"},
      {"1 +", "a number, a name or ( is expected at character 4"},
      {"(1", ") is expected at character 3"},
      {"1 2", "an operation is expected at character 3"},
      {"1x", "an operation is expected at character 2"},
      {"cos(1)", "abs, sqrt, log2, finite, min or max is expected at character 1"},
      {"abs(1, 2)", "abs takes one argument"},
      {"min(1)", "min takes two arguments or more"},
      {"1 & 2", "an operation is expected at character 3"},
  };
  for (const auto& [text, wanted] : table) try {
      Expression wrong(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const ReportError& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  EXPECT_THROW(Expression("x > 1").value(kNumbers), ReportError);
  EXPECT_THROW(Expression(std::string(1000, '(')), ReportError);
}

}  // namespace
}  // namespace halfmark::reports
