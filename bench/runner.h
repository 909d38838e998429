// The loop over the cases: measures each, writes each record to the journal, and the report at the end.
#pragma once

#include <filesystem>
#include <functional>

#include "bench/case.h"
#include "reports/report.h"

namespace halfmark {

struct RunOptions {
  std::vector<Case> cases;
  std::string suite, command;
  uint64_t seed = 0;
  std::string shard;  // "2/8": `cases` are this part of `plan`; empty: all of it
  Plan plan;
  std::filesystem::path output = "report.json";
  bool resume = false;
  bool probes = true;    // ask each device how its matmuls add, for the report's environment
  bool isolate = false;  // each case in a process of its own
  int processes = 0;     // each case in so many processes of its own, the cases in turn; 0 = none
  double timeout = 0;    // seconds for a case, 0 = none; only with isolate or processes
  std::string program;   // what to start for an isolated case
};

// Called before each case and once at the end: how many are done, of how many, and what is next ("" at the end).
using Progress = std::function<void(size_t done, size_t all, const std::string& next)>;

// Opens every device and checks that the report can be written, by nobody else at the same time, before anything is
// measured. Throws Error or ReportError when not. When a signal cuts it short (bench/interruption.h) the report, here
// and on disk, is partial and the journal stays.
Report run_cases(const RunOptions& options, const Progress& progress);

// One line about a run that a signal has cut short: what is done, and how to go on.
std::string interruption_text(const Report& report, const std::filesystem::path& output);

// Where the finished records lie while the run is under way.
std::filesystem::path journal_of(const std::filesystem::path& output);

}  // namespace halfmark
