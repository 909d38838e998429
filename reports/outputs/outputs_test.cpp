// Writing the outputs: all requested files, or one clear error. Leaves files for readers_test.py.
#include "reports/outputs/outputs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "reports/outputs/annotations.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/export.h"
#include "reports/outputs/gbench.h"
#include "reports/outputs/judgement_json.h"
#include "reports/outputs/junit.h"
#include "reports/outputs/markdown.h"
#include "reports/outputs/sample_judgement.h"
#include "reports/outputs/sample_report.h"
#include "reports/outputs/text.h"
#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/paths_testing.h"

namespace halfmark::reports {
namespace {

namespace fs = std::filesystem;

class OutputsTest : public FolderTest {
 protected:
  void SetUp() override { ::unsetenv("GITHUB_STEP_SUMMARY"); }
  void TearDown() override { ::unsetenv("GITHUB_STEP_SUMMARY"); }

  static void expect_complaint(const OutputFiles& files, const std::string& about) {
    EXPECT_SAYS(complaint([&] { write_outputs(sample_judgement(), timed_report(), files); }), about);
  }
};

TEST_F(OutputsTest, WritesWhatWasAskedForAndNothingElse) {
  write_outputs(sample_judgement(), timed_report(), {.csv = folder_ / "a.csv", .gbench = folder_ / "b.json"});
  EXPECT_EQ(read_file(folder_ / "a.csv"), csv_of(sample_judgement()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(OutputsTest, WritesNothingWhenOneDestinationCannotBeWritten) {
  OutputFiles files{.junit = folder_ / "junit.xml", .csv = folder_ / "no such folder" / "a.csv"};
  expect_complaint(files, (folder_ / "no such folder" / "a.csv").string());
  files.csv = folder_;
  expect_complaint(files, folder_.string());
  EXPECT_FALSE(fs::exists(folder_ / "junit.xml"));
}

TEST_F(OutputsTest, RefusesOneFileForTwoOutputs) {
  expect_complaint({.junit = folder_ / "same", .json = folder_ / "same"}, "named for two outputs");
  EXPECT_NO_THROW(check_outputs({.junit = "/dev/null", .json = "/dev/null"}));
}

TEST_F(OutputsTest, ChecksWithoutTouchingAFile) {
  const fs::path old = folder_ / "old.md";
  write_file(old, "as it was");
  check_outputs({.markdown = old, .csv = folder_ / "new.csv"});
  EXPECT_EQ(read_file(old), "as it was");
  EXPECT_FALSE(fs::exists(folder_ / "new.csv"));
}

TEST_F(OutputsTest, ReplacesTheMarkdownFile) {
  const fs::path page = folder_ / "page.md";
  write_file(page, "of yesterday");
  write_outputs(sample_judgement(), {}, {.markdown = page});
  EXPECT_EQ(read_file(page), markdown_of(sample_judgement()));
}

TEST_F(OutputsTest, AppendsToTheSummaryOfAGitHubStep) {
  const fs::path page = folder_ / "summary.md";
  ::setenv("GITHUB_STEP_SUMMARY", page.c_str(), 1);
  write_file(page, "of another gate\n");
  write_outputs(sample_judgement(), {}, {.markdown = page});
  EXPECT_EQ(read_file(page), "of another gate\n\n" + markdown_of(sample_judgement()));
  write_outputs(sample_judgement(), {}, {.markdown = folder_ / "other.md"});
  write_outputs(sample_judgement(), {}, {.markdown = folder_ / "other.md"});
  EXPECT_EQ(read_file(folder_ / "other.md"), markdown_of(sample_judgement()));
}

TEST_F(OutputsTest, SummariesOfOneStepShareTheRoomThereIs) {
  const fs::path page = folder_ / "summary.md";
  ::setenv("GITHUB_STEP_SUMMARY", page.c_str(), 1);
  write_file(page, std::string(kMarkdownLimit - 20000, 'x') + "\n");
  Judgement judgement;
  for (int i = 0; i < 5000; ++i)
    judgement.lines.push_back(judged("case-" + std::to_string(i), Question::bits, Outcome::changed, "words"));
  write_outputs(judgement, {}, {.markdown = page});
  EXPECT_LE(fs::file_size(page), kMarkdownLimit);
  EXPECT_NE(read_file(page).find("rows are left out"), std::string::npos);
}

TEST_F(OutputsTest, PrintsAnnotationsWhenAsked) {
  testing::internal::CaptureStdout();
  write_outputs(sample_judgement(), {}, {.annotations = true});
  std::fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), annotations_of(sample_judgement()));
}

// Written into the build folder for readers_test.py.
TEST(Outputs, AreWrittenForOtherReaders) {
  const fs::path folder = fs::path(test_folders::binary()) / "reports" / "written_outputs";
  fs::create_directories(folder);
  const auto write = [&](const std::string& name, const Judgement& judgement, const Report& report) {
    write_outputs(judgement, report,
                  {.markdown = folder / (name + ".md"),
                   .junit = folder / (name + ".xml"),
                   .csv = folder / (name + ".csv"),
                   .json = folder / (name + ".json"),
                   .gbench = folder / (name + "_gbench.json"),
                   .smaller_is_better = folder / (name + "_smaller.json")});
    write_file(folder / (name + ".annotations"), annotations_of(judgement));
    write_file(folder / (name + ".txt"), text_of(judgement, {}));
  };
  write("sample", sample_judgement(), timed_report(1.25));
  write_outputs({}, timed_report(), {.gbench = folder / "before_gbench.json"});
  Report hostile = timed_report();
  for (const std::string& name : hostile_names()) {
    Record record = hostile.records[0];
    record.id = name;
    hostile.records.push_back(record);
  }
  write("hostile", hostile_judgement(), hostile);
  for (const ExportFormat& format : export_formats()) {
    write_file(folder / fmt::format("sample_export.{}", format.name), format.write(timed_report()).text);
    write_file(folder / fmt::format("hostile_export.{}", format.name), format.write(hostile).text);
  }
  timed_report().save(folder / "sample_report.json");
  hostile.save(folder / "hostile_report.json");
  for (const auto& file : fs::directory_iterator(folder)) EXPECT_GT(file.file_size(), 0u) << file.path();
}

// The fenced blocks of a page, in their order.
std::vector<std::string> blocks_of(const std::string& page) {
  std::vector<std::string> blocks;
  for (size_t at = page.find("\n```"); at != page.npos; at = page.find("\n```", at + 4)) {
    const size_t begin = page.find('\n', at + 1) + 1;
    at = page.find("\n```", begin);
    blocks.push_back(page.substr(begin, at + 1 - begin));
  }
  return blocks;
}

TEST(Outputs, AreWhatTheReadmeShows) {
  const std::string page = read_file(fs::path(test_folders::source()) / "reports" / "outputs" / "README.md");
  const Judgement judgement = sample_judgement();
  std::string csv = csv_of(judgement);
  std::erase(csv, '\r');
  const std::string printed[] = {text_of(judgement, {}),
                                 markdown_of(judgement),
                                 annotations_of(judgement),
                                 junit_of(judgement),
                                 csv,
                                 json_of(judgement),
                                 gbench_of(timed_report(1.25)),
                                 smaller_is_better_of(timed_report(1.25))};
  const std::vector<std::string> blocks = blocks_of(page);
  ASSERT_EQ(blocks.size(), std::size(printed));
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::istringstream lines(blocks[i]);
    for (std::string line; std::getline(lines, line);)
      EXPECT_NE(("\n" + printed[i]).find("\n" + line + "\n"), std::string::npos) << "no longer printed: " << line;
  }
}

}  // namespace
}  // namespace halfmark::reports
