// The section of mistakes in the file of a report.
#include <gtest/gtest.h>

#include <cmath>

#include "reports/record/folder_testing.h"
#include "reports/record/record_reading.h"
#include "reports/record/sample_report_testing.h"

namespace halfmark::reports {
namespace {

class LintSection : public FolderTest {};

TEST_F(LintSection, HasASectionOfTheMistakesThatRulesFound) {
  Report written = sample_report();
  written.records[1].lint = {{"small_scale", {{"least loss scale", std::nan("")}}, "Set a floor.", "S"}};
  written.save(folder_ / "report.json");
  const Report read = Report::load(folder_ / "report.json");
  ASSERT_EQ(read.records[0].lint.size(), 2u);
  ASSERT_EQ(read.records[1].lint.size(), 1u);
  EXPECT_EQ(to_json(read), to_json(written));
  const auto json = to_json(written);
  ASSERT_EQ(json["lint"].size(), 3u);
  EXPECT_EQ(json["lint"][0]["case"], written.records[0].id);
  EXPECT_EQ(json["lint"][0]["expected"], true) << "the first record has an expectation";
  EXPECT_EQ(json["lint"][2]["expected"], false);
  EXPECT_EQ(json["lint"][0]["evidence"]["gradients / those of fp64"], 65532.5);
  EXPECT_EQ(json["lint"][2]["evidence"]["least loss scale"], "NaN");
  EXPECT_FALSE(json["records"][0].contains("lint")) << "each finding is written once";
  EXPECT_EQ(record_from_json(to_json(written.records[0]), "a journal").lint.size(), 2u) << "a record alone has its own";
  for (Record& record : written.records) record.lint.clear();
  EXPECT_FALSE(to_json(written).contains("lint"));
}

TEST(LintSectionOfAReport, RefusesAMistakeOfACaseThatItDoesNotHave) {
  auto json = to_json(sample_report());
  json["lint"][1]["case"] = "mlp/other";
  EXPECT_SAYS(complaint([&] { report_from_json(json, "r.json"); }), "lint[1]");
  EXPECT_SAYS(complaint([&] { report_from_json(json, "r.json"); }), "no record has the id \"mlp/other\"");
  EXPECT_SAYS(complaint([&] { Report::parse(json.dump(), "r.json"); }), "no record has the id \"mlp/other\"");
  json = to_json(sample_report());
  json["lint"][0].erase("remedy");
  EXPECT_SAYS(complaint([&] { report_from_json(json, "r.json"); }), "remedy");
}

}  // namespace
}  // namespace halfmark::reports
