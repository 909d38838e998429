// A build of halfmark, given as a program, the folder of an unpacked archive, or an archive.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/temporary_folder.h"

namespace halfmark::bench {

class Build {
 public:
  // Throws Error: no such file, not an archive, no program in it, or a program that does not answer to --version.
  static Build open(const std::string& given);

  // All programs in a folder, each directly or alone in a folder of its own, by name: the layouts of one build, linked with
  // other orders of its objects. Throws Error if there are none, or if one does not answer to --version as the first one does.
  static std::vector<Build> open_layouts(const std::string& folder);

  bool is_same_program(const Build& other) const;          // the same file, or one with equal bytes
  const std::string& given() const { return given_; }      // as named by the user
  const std::string& version() const { return version_; }  // "halfmark 0.1.0 (8b2deaf)"
  std::string description() const;   // the program and its version; of a folder the program found in it
  std::string program_name() const;  // "halfmark", or that of an extension
  std::string revision() const;      // git revision, "8b2deaf"
  std::vector<std::string> command(std::vector<std::string> arguments) const;  // program and arguments
  // Standard output of the program. Throws Error with its error message when the exit code is neither 0 nor 1.
  std::string output(const std::vector<std::string>& arguments) const;

 private:
  std::string given_, version_;
  std::filesystem::path program_;
  std::shared_ptr<const TemporaryFolder> unpacked_;  // set if an archive was given
};

}  // namespace halfmark::bench
