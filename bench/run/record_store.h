// The finished records of a run: in memory, in the journal next to the report, and in the report at the end.
#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/journal.h"
#include "reports/record/lock.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// The journal: the file that holds the finished records during the run.
std::filesystem::path journal_of(const std::filesystem::path& output);

// One thread adds records; another thread may save the report at any time.
class RecordStore {
 public:
  // Checks that the report can be written and takes its lock. With an open descriptor the report goes there, without
  // lock and journal. Throws Error or ReportError when it cannot be written.
  explicit RecordStore(std::filesystem::path output, int descriptor = -1);

  // Starts the journal or, with `resume`, continues the existing one. `header`: environment and run of the report;
  // `ids`: the cases in the order of the report. Throws Error when the journal belongs to a different run. `resume` with a
  // finished report of the same run in place of a journal: its records, and nothing is written.
  void begin(Report header, const std::vector<std::string>& ids, int processes, bool resume);

  const std::optional<Record>& record(size_t place) const { return records_[place]; }  // for the adding thread
  void add(size_t place, Record record);  // on disk when it returns. Throws Error that names the journal

  // Writes the report with the records so far. Without any record, or before begin(), an earlier report stays unchanged.
  // An unfinished report does not replace a finished one, which is renamed to REPORT.old.
  Report save() const;

  // Closes and removes the journal if nothing in it is needed: the saved report is complete, or no record was written.
  void end_journal(const Report& saved);
  void release_lock() { lock_.reset(); }

  const std::filesystem::path& output() const { return output_; }

 private:
  Report report() const;
  std::vector<Record> earlier_records(bool resume) const;
  // What is at the output, if it is a finished report of the same cases, seed, program and machine.
  std::optional<Report> finished_report(const std::vector<std::string>& ids) const;
  [[noreturn]] void throw_kept(const ReportError& error) const;

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::filesystem::path output_, journal_path_;
  int descriptor_;
  bool to_file_;  // false: a pipe, a device or a descriptor, which has neither lock nor journal
  std::optional<FileLock> lock_;
  std::optional<Journal> journal_;
  Report header_;
  std::optional<Report> finished_;  // the report that --resume found finished
  std::vector<std::optional<Record>> records_;
  int processes_ = 0;
  bool begun_ = false, resumed_ = false;
  mutable std::mutex mutex_;   // of the members
  mutable std::mutex saving_;  // of the file
};

}  // namespace halfmark::bench
