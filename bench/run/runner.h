// A run: the schedule of its cases, their execution, and the store of their records.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "bench/run/execution.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct RunOptions {
  std::vector<Case> cases;
  RunInfo info;  // command, seed, suite, shard and plan, for the report
  std::filesystem::path output = "report.json";
  int descriptor = -1;  // open for writing: the report goes there and not to `output`
  bool resume = false;
  bool probes = true;  // ask each device how its matmuls add, for the report's environment
  ExecutionOptions execution;
};

// Called before each case and once at the end: how many are done, of how many, and what is next ("" at the end).
using Progress = std::function<void(size_t done, size_t all, const std::string& next)>;

// Opens every device and checks that the report can be written, by no other process at the same time, before anything
// is measured. Throws Error or ReportError when not. When a signal ends it early (bench/run/interruption.h) the report,
// returned and on disk, is partial and the journal is kept.
Report run_cases(const RunOptions& options, const Progress& progress);

// One line about a run that a signal has ended early: what is done, and how to continue.
std::string interruption_text(const Report& report, const std::filesystem::path& output);

}  // namespace halfmark::bench
