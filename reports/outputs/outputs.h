// Entry point of the outputs: which files were requested, and writing all of them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// An empty path: not requested.
struct OutputFiles {
  std::filesystem::path markdown{};  // appended to if it is the file that GITHUB_STEP_SUMMARY names, else replaced
  std::filesystem::path junit{}, csv{};
  std::filesystem::path json{};               // the judgement
  std::filesystem::path gbench{};             // the candidate's times, for tools that read Google Benchmark
  std::filesystem::path smaller_is_better{};  // the candidate's errors and bytes, for github-action-benchmark
  bool annotations = false;                   // printed on standard output
};

// For --help, in the order of the struct.
inline constexpr std::string_view kMarkdownHelp =
    "summary as Markdown; appended to if it is the file that GITHUB_STEP_SUMMARY names, else replaced";
inline constexpr std::string_view kJunitHelp = "JUnit XML: a test case for each case and question";
inline constexpr std::string_view kCsvHelp = "every line as CSV";
inline constexpr std::string_view kJsonHelp = "the judgement as JSON (reports/schema/judgement-1.schema.json)";
inline constexpr std::string_view kGbenchHelp = "the new report's hot times in Google Benchmark's JSON";
inline constexpr std::string_view kSmallerIsBetterHelp =
    "the new report's errors and bytes as github-action-benchmark's customSmallerIsBetter";
inline constexpr std::string_view kAnnotationsHelp = "print GitHub annotations, five at most";

// Checks that the files can be written and none is named twice; call it before hours of measuring. Throws ReportError
// about the first problem.
void check_outputs(const OutputFiles& files, const std::vector<std::filesystem::path>& inputs = {});

// Writes the requested files; checks all before the first is written. Throws ReportError.
void write_outputs(const Judgement& judgement, const Report& candidate, const OutputFiles& files);

}  // namespace halfmark::reports
