#include "reports/outputs/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "reports/outputs/annotations.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/gbench.h"
#include "reports/outputs/judgement_json.h"
#include "reports/outputs/junit.h"
#include "reports/outputs/markdown.h"
#include "reports/record/file.h"

namespace halfmark::reports {

namespace {

namespace fs = std::filesystem;

constexpr size_t kLeast = 16 * 1024;  // bytes that a summary may always have

std::vector<fs::path> asked_for(const OutputFiles& files) {
  std::vector<fs::path> paths;
  for (const fs::path& path :
       {files.markdown, files.junit, files.csv, files.json, files.gbench, files.smaller_is_better})
    if (!path.empty()) paths.push_back(path);
  return paths;
}

bool is_step_summary(const fs::path& path) {
  const char* summary = std::getenv("GITHUB_STEP_SUMMARY");
  return summary && *summary && path == fs::path(summary);
}

// Checks without opening the file: until the measurement has ended, an existing file must stay as it is.
void check_path(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) errno = EISDIR;
    if (S_ISDIR(status.st_mode) || ::access(path.c_str(), W_OK) != 0) throw_write_error(path);
    require_open_for_writing(path);
    if (is_written_in_place(path)) return;
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw_write_error(path);
}

void append(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) throw_write_error(path);
  try {
    write_all(file, text, path);
  } catch (...) {
    ::close(file);
    throw;
  }
  if (::close(file) != 0) throw_write_error(path);
}

// A step may run the gate more than once; the limit applies to all its summaries together.
void append_summary(const Judgement& judgement, const fs::path& path) {
  std::error_code absent;
  const auto size = fs::file_size(path, absent);
  const size_t used = absent ? 0 : static_cast<size_t>(size);
  const size_t room = std::max(kLeast, kMarkdownLimit - std::min(used, kMarkdownLimit));
  append(path, (used > 0 ? "\n" : "") + markdown_of(judgement, room));
}

}  // namespace

void check_outputs(const OutputFiles& files, const std::vector<fs::path>& inputs) {
  const std::vector<fs::path> paths = asked_for(files);
  for (size_t i = 0; i < paths.size(); ++i) {
    check_path(paths[i]);
    require_no_input(paths[i], inputs);
    const bool twice =
        std::find(paths.begin() + static_cast<std::ptrdiff_t>(i) + 1, paths.end(), paths[i]) != paths.end();
    if (twice && !is_written_in_place(paths[i]))
      throw ReportError(fmt::format("{}: named for two outputs; use a different file for each", paths[i].string()));
  }
}

void write_outputs(const Judgement& judgement, const Report& candidate, const OutputFiles& files) {
  check_outputs(files);
  if (!files.junit.empty()) write_file(files.junit, junit_of(judgement));
  if (!files.csv.empty()) write_file(files.csv, csv_of(judgement));
  if (!files.json.empty()) write_file(files.json, json_of(judgement));
  if (!files.gbench.empty()) write_file(files.gbench, gbench_of(candidate));
  if (!files.smaller_is_better.empty()) write_file(files.smaller_is_better, smaller_is_better_of(candidate));
  if (!files.markdown.empty()) {
    if (is_step_summary(files.markdown))
      append_summary(judgement, files.markdown);
    else
      write_file(files.markdown, markdown_of(judgement));
  }
  if (files.annotations) fmt::print("{}", annotations_of(judgement));
}

}  // namespace halfmark::reports
