// Measures a case in a separate process: a crash or a hang costs the record of that case only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Exit code of an isolated case whose data cannot be read: EX_NOINPUT of sysexits.h. Only the process that started it sees it.
inline constexpr int kBrokenData = 66;

struct IsolatedRun {
  std::optional<Record> record;  // nullopt: see reason
  std::string reason;            // "killed after 30 s (--timeout)", "crashed with signal 11 (Segmentation fault)"
  double seconds = 0;
};

// Starts `program run --case ID`, followed by `more`, and reads its report. timeout in seconds, 0 = none. The process is killed at the
// timeout and when this process dies. variables: NAME=VALUE, added to its environment. Throws Interrupted when a signal ends the run
// (bench/run/interruption.h), and DataError where the case cannot read its data.
IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout,
                         const std::vector<std::string>& more = {}, const std::vector<std::string>& variables = {});

}  // namespace halfmark::bench
