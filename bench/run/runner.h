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
  bool probes = true;  // probe how the matmuls of each device add, for the report's environment
  ExecutionOptions execution;
};

// Called before each case and once at the end: number of finished
// cases, number of all cases, next case ("" at the end).
using Progress = std::function<void(size_t done, size_t all, const std::string& next)>;

// Before anything is measured, opens every device and checks that the report can be written and that no other process
// writes it. Throws Error or ReportError otherwise. If a signal ends the run early (bench/run/interruption.h), the
// report, returned and on disk, is partial and the journal is kept. After a signal, interrupting_signal() names it, even
// if it came so late that the report is complete. Samples of --data that cannot be read end the run likewise: throws Error
// that says what is saved, with a descriptor DataError.
Report run_cases(const RunOptions& options, const Progress& progress);

// One line about a run that a signal ended early: what is finished, and how to continue.
std::string interruption_text(const Report& report, const std::filesystem::path& output);

}  // namespace halfmark::bench
