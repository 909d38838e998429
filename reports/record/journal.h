// The journal of a run in progress: one line per finished record, so that a killed run loses none of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "reports/record/report.h"

namespace halfmark::reports {

class Journal {
 public:
  // Whether the file is a journal, complete or not; false if there is no file. Throws ReportError for any other file or
  // a symbolic link, which is not ours and must not be changed.
  static bool is_at(const std::filesystem::path& path);

  // Creates a new journal; the header line has environment and run, records are ignored. Throws ReportError, also if
  // there is a file that is not a journal.
  static Journal create(const std::filesystem::path& path, const Report& header);

  // Opens a journal to continue it; an incomplete last line is cut off. Throws ReportError.
  static Journal resume(const std::filesystem::path& path);

  // Reads a journal without an incomplete last line. Of two records with one id the later is used, in the place of the
  // first. Throws ReportError if it is not a journal of halfmark.
  static Report read(const std::filesystem::path& path);
  static Report parse(std::string_view text, const std::string& where);  // the same from memory

  // The record is on disk when it returns. Throws ReportError naming the path and the cause.
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
