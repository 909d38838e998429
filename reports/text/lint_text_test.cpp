// The section of mistakes in `halfmark show`.
#include "reports/text/lint_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

constexpr TextOptions kLintWidth{.width = 1000};

Record linted(const std::string& id, std::vector<LintFinding> findings) {
  Record record;
  record.id = id, record.subject = "mlp/h64", record.device = "cpu", record.policy = "amp-fp16",
  record.harness = "lint";
  record.measurements = {{.metric = "lint.findings", .at = "", .value = static_cast<double>(findings.size())}};
  record.lint = std::move(findings);
  return record;
}

LintFinding not_unscaled(double ratio) {
  return {"not_unscaled", {{"gradients / those of fp64", ratio}, {"step", 2}}, "Unscale them.", "S0-10"};
}

bool has_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(LintText, NamesTheRuleTheRemedyTheCaseAndTheNumbers) {
  Report report;
  report.records = {linted("a", {not_unscaled(65536)}), linted("b", {})};
  const std::string text = lint_text(report, kLintWidth);
  EXPECT_TRUE(has_text(text, "- not_unscaled: Unscale them.\n"));
  EXPECT_TRUE(has_text(text, "    a: gradients / those of fp64 65536; step 2\n")) << text;
  EXPECT_TRUE(has_text(text, "    see S0-10\n"));
  EXPECT_FALSE(has_text(text, "none found"));
}

TEST(LintText, SaysWhenNothingWasFoundAndNothingWhenNothingWasExamined) {
  Report report;
  report.records = {linted("a", {}), linted("b", {})};
  EXPECT_TRUE(has_text(lint_text(report, kLintWidth), "none found in 2 cases"));
  report.records[0].measurements.clear(), report.records[1].measurements.clear();
  EXPECT_EQ(lint_text(report, kLintWidth), "");
}

TEST(LintText, CountsCasesBeyondTheThirdAndListsPlantedMistakesApart) {
  Report report;
  for (const char* id : {"a", "b", "c", "d", "e"}) report.records.push_back(linted(id, {not_unscaled(4)}));
  EXPECT_TRUE(has_text(lint_text(report, kLintWidth), "and 2 cases more"));
  EXPECT_FALSE(has_text(lint_text(report, kLintWidth), "    e:"));
  EXPECT_TRUE(has_text(lint_text(report, {.width = 1000, .all = true}), "    e:"));
  for (Record& record : report.records)
    record.expectation = Expectation{"lint.finding", "not_unscaled", "==", 1, 1, true};
  const std::string text = lint_text(report, kLintWidth);
  EXPECT_FALSE(has_text(text, "training\n")) << "no mistake of a training that is meant to be right: " << text;
  EXPECT_TRUE(has_text(text,
                       "that were planted or expected\nplanted in 5 cases, found by the rule that must find it in "
                       "all\n- not_unscaled: "))
      << text;
  EXPECT_TRUE(has_text(text, "    a:"));
}

TEST(LintText, NamesThePlantedMistakesThatTheirRuleDidNotFind) {
  Report report;
  report.records = {linted("a", {not_unscaled(4)}), linted("b", {not_unscaled(4)}), linted("c", {})};
  for (Record& record : report.records)
    record.expectation = Expectation{"lint.finding", "not_unscaled", "==", 1, 1, true};
  report.records[1].expectation = Expectation{"lint.finding", "unscaled_twice", "==", 1, 0, false};
  report.records[2].expectation->met = false;
  const std::string text = lint_text(report, kLintWidth);
  EXPECT_TRUE(has_text(text,
                       "planted in 3 cases, found by the rule that must find it in 1\n"
                       "    b: not found by unscaled_twice\n    c: not found by not_unscaled\n"))
      << text;
  report.records = {report.records[2]};
  EXPECT_TRUE(has_text(lint_text(report, kLintWidth), "in 0\n    c: not found by not_unscaled\n")) << "alone";
}

// A record whose control is about something else, such as `training` with control=scale_too_high.
TEST(LintText, CountsOnlyMistakesThatARuleMustFindAsPlanted) {
  Report report;
  report.records = {linted("a", {not_unscaled(4)})};
  report.records[0].expectation = Expectation{"training.skips", "", ">", 0, 10, true};
  const std::string text = lint_text(report, kLintWidth);
  EXPECT_FALSE(has_text(text, "planted in")) << text;
  EXPECT_TRUE(has_text(text, "planted or expected\n- not_unscaled: ")) << text;
}

TEST(LintText, IsPartOfShowAndItsNumbersAreNoColumnsAndNoNotices) {
  NamedReport named{"r.json", {}};
  named.report.records = {linted("mlp/h64/cpu/amp-fp16/lint", {not_unscaled(65536)})};
  named.report.records[0].measurements.push_back({.metric = "lint.evidence", .at = "masked_row", .value = NAN});
  const std::string text = show(named, kLintWidth);
  EXPECT_TRUE(has_text(text, "- not_unscaled: Unscale them."));
  EXPECT_FALSE(has_text(text, "lint.finding")) << text;
  EXPECT_FALSE(has_text(text, "worth noticing")) << text;
}

}  // namespace
}  // namespace halfmark::reports
