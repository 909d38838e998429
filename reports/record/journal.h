// The journal of a run under way: one line a finished record, so that a run that is killed loses none of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "reports/record/report.h"

namespace halfmark::reports {

class Journal {
 public:
  // Whether a journal stands there, torn or not; false when nothing does. Throws ReportError for all else, a symbolic
  // link too: it is somebody else's and stays as it is.
  static bool is_at(const std::filesystem::path& path);

  // Starts a journal anew; the header line holds environment and run, records are ignored. Throws ReportError, also
  // where a file stands that is none of ours.
  static Journal create(const std::filesystem::path& path, const Report& header);

  // Opens a journal to go on with; what a killed run left of its last line is cut off. Throws ReportError.
  static Journal resume(const std::filesystem::path& path);

  // What is in a journal, its torn last line left out. Of two records with one id the later counts, at the place of the
  // first. Throws ReportError on anything else that is not a journal of ours.
  static Report read(const std::filesystem::path& path);
  static Report parse(std::string_view text, const std::string& where);  // the same from memory

  // On disk when it returns. Throws ReportError naming the path and the cause.
  void append(const Record& record);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;
  ~Journal();

 private:
  explicit Journal(std::filesystem::path path);  // to append to

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace halfmark::reports
