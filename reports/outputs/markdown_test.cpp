// The text of the page. readers_test.py tests it with GitHub's renderer.
#include "reports/outputs/markdown.h"

#include <gtest/gtest.h>

#include "reports/outputs/clean.h"
#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

size_t count(const std::string& text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++times;
  return times;
}

Judgement many(size_t lost, size_t passed) {
  Judgement judgement;
  for (size_t i = 0; i < lost; ++i)
    judgement.lines.push_back(judged("lost-" + std::to_string(i), Question::presence, Outcome::lost, "gone"));
  for (size_t i = 0; i < passed; ++i)
    judgement.lines.push_back(judged("passed-" + std::to_string(i), Question::presence, Outcome::pass));
  conclude(judgement);
  return judgement;
}

TEST(Markdown, BeginsWithTheVerdict) {
  EXPECT_TRUE(markdown_of(sample_judgement()).starts_with("**REGRESSION**: 3 breaches, 1 case lost,"));
}

TEST(Markdown, ShowsTwentyFailuresAndFoldsTheRest) {
  const std::string text = markdown_of(many(23, 5));
  const size_t fold = text.find("<details><summary>3 other lines</summary>");
  ASSERT_NE(fold, text.npos) << text;
  EXPECT_EQ(count(text.substr(0, fold), "\n| CASE_LOST |"), 20u);
  EXPECT_EQ(count(text.substr(fold), "\n| CASE_LOST |"), 3u);
  EXPECT_EQ(count(text, "<details><summary>5 cases that passed</summary>"), 1u);
  EXPECT_EQ(count(text, "</details>"), 2u);
}

TEST(Markdown, LeavesRowsOutAndCountsThemWhereThePageWouldBeTooLong) {
  const size_t cases = 30000;
  const std::string text = markdown_of(many(cases, cases));
  EXPECT_LE(text.size(), kMarkdownLimit);
  EXPECT_GT(text.size(), kMarkdownLimit / 2);
  const size_t shown = count(text, "\n| CASE_LOST |") + count(text, "<code>passed-");
  const std::string said = std::to_string(2 * cases - shown) + " rows are left out: ";
  EXPECT_NE(text.find(said), text.npos) << text.substr(text.size() - 300);
  EXPECT_EQ(count(text, "<details>"), count(text, "</details>"));
}

TEST(Markdown, KeepsEveryLimitItIsGiven) {
  for (const size_t limit : {2000u, 3000u, 5000u, 20000u, 100000u})
    EXPECT_LE(markdown_of(hostile_judgement(), limit).size(), limit);
}

TEST(Markdown, LeavesNothingOutOfAPageThatFits) {
  EXPECT_EQ(markdown_of(sample_judgement()).find("left out"), std::string::npos);
}

TEST(Markdown, IsValidUtf8WhateverTheNames) {
  const std::string text = markdown_of(hostile_judgement());
  EXPECT_EQ(text, valid_utf8(text));
}

}  // namespace
}  // namespace halfmark::reports
