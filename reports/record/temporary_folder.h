// A folder that is removed with all that is in it.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "reports/record/error.h"

namespace halfmark::reports {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& purpose) {  // "case": /tmp/halfmark-case-Xf3a9Q; throws ReportError
    std::string pattern = (std::filesystem::temp_directory_path() / ("halfmark-" + purpose + "-XXXXXX")).string();
    if (!::mkdtemp(pattern.data()))
      throw ReportError("cannot create a temporary folder: " + std::string(std::strerror(errno)));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace halfmark::reports
