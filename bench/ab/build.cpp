#include "bench/ab/build.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "bench/run/child_process.h"
#include "kernels/number/error.h"
#include "reports/record/file.h"

namespace halfmark::bench {

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The program in the folder of an installation or of a build, else in the only folder in it that has one, as of an unpacked
// archive. Throws Error if several have one.
std::filesystem::path program_in(const std::filesystem::path& folder) {
  const auto found_in = [](const std::filesystem::path& place) -> std::filesystem::path {
    for (const char* name : {"bin/halfmark", "halfmark"})
      if (std::filesystem::is_regular_file(place / name)) return place / name;
    return {};
  };
  if (auto found = found_in(folder); !found.empty()) return found;
  std::vector<std::filesystem::path> inside;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory())
      if (auto found = found_in(entry.path()); !found.empty()) inside.push_back(std::move(found));
  std::sort(inside.begin(), inside.end());
  if (inside.size() > 1)
    throw Error(fmt::format("{}: contains {} and {}; name one of them", folder.string(), inside[0].string(),
                            inside[1].string()));
  return inside.empty() ? std::filesystem::path() : inside.front();
}

}  // namespace

Build Build::open(const std::string& given) {
  Build build;
  build.given_ = given;
  std::filesystem::path path = given;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw Error(given + ": no such file; name a halfmark program, an unpacked archive or a .tar.gz");
  if (std::filesystem::is_regular_file(path) && (given.ends_with(".tar.gz") || given.ends_with(".tgz"))) {
    build.unpacked_ = std::make_shared<TemporaryFolder>("build");
    const std::string folder = build.unpacked_->path().string();
    const Ended tar = run_program({"tar", "-xzf", std::filesystem::absolute(path).string(), "-C", folder});
    if (tar.code != 0) throw Error(given + ": cannot be unpacked: " + first_line(tar.err));
    path = folder;
  }
  build.program_ = std::filesystem::is_directory(path) ? program_in(path) : std::filesystem::absolute(path);
  if (build.program_.empty())
    throw Error(given + ": contains no bin/halfmark; name the program itself, an unpacked archive or a .tar.gz");
  const Ended version = run_program(build.command({"--version"}));
  // A program with an extension names itself first: "mysuite 1.0, halfmark 0.1.0 (8b2deaf)".
  const bool answers = version.out.starts_with("halfmark ") || version.out.find(", halfmark ") != std::string::npos;
  if (version.code != 0 || !answers)
    throw Error(given + ": --version does not answer like halfmark: " +
                first_line(version.err.empty() ? version.out : version.err));
  build.version_ = first_line(version.out);
  return build;
}

std::string Build::description() const {
  std::error_code ignored;
  const bool is_found = !unpacked_ && std::filesystem::is_directory(given_, ignored);
  return (is_found ? program_.string() : given_) + ", " + version_;
}

namespace {
// An executable file that is no shared library.
bool is_program(const std::filesystem::directory_entry& entry) {
  return entry.is_regular_file() && ::access(entry.path().c_str(), X_OK) == 0 &&
         entry.path().filename().string().find(".so") == std::string::npos;
}
}  // namespace

std::vector<Build> Build::open_layouts(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw Error(folder + ": is no folder; --layouts needs a folder of programs");
  std::vector<std::string> programs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) {
      if (is_program(entry)) programs.push_back(entry.path().string());
      continue;
    }
    std::vector<std::string> inside;  // a layout with libraries of its own has a folder of its own
    for (const auto& file : std::filesystem::directory_iterator(entry))
      if (is_program(file)) inside.push_back(file.path().string());
    if (inside.size() != 1)
      throw Error(fmt::format("{}: contains {} programs; a folder of a layout contains one", entry.path().string(),
                              inside.size()));
    programs.push_back(inside.front());
  }
  std::sort(programs.begin(), programs.end());
  std::vector<Build> layouts;
  for (const std::string& program : programs) {
    layouts.push_back(open(program));
    if (layouts.back().version() != layouts.front().version())
      throw Error(fmt::format("{}: is {}, but {} is {}; a folder holds the layouts of one build", program,
                              layouts.back().version(), programs.front(), layouts.front().version()));
  }
  if (layouts.empty()) throw Error(folder + ": contains no program; --layouts needs a folder of programs");
  return layouts;
}

bool Build::is_same_program(const Build& other) const {
  std::error_code ignored;
  if (std::filesystem::equivalent(program_, other.program_, ignored)) return true;
  return read_file(program_.string()) == read_file(other.program_.string());
}

std::string Build::program_name() const { return version_.substr(0, version_.find(' ')); }

std::string Build::revision() const {
  const size_t begin = version_.find('(') + 1, end = version_.find(')', begin);
  return begin == 0 || end == version_.npos ? std::string() : version_.substr(begin, end - begin);
}

std::vector<std::string> Build::command(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), program_.string());
  return arguments;
}

std::string Build::output(const std::vector<std::string>& arguments) const {
  const Ended ended = run_program(command(arguments));
  if (ended.code > 1)
    throw Error(
        fmt::format("{} {}: ended with code {}: {}", given_, arguments.front(), ended.code, first_line(ended.err)));
  return ended.out;
}

}  // namespace halfmark::bench
