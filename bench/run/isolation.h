// A case in a process of its own: one that crashes or hangs costs its own record and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct IsolatedRun {
  std::optional<Record> record;  // nothing: see reason
  std::string reason;            // "killed after 30 s (--timeout)", "crashed with signal 11 (Segmentation fault)"
  double seconds = 0;
};

// Starts `program run --case ID` and reads what it writes. timeout in seconds, 0 = none; a case that takes longer is
// killed, and so is it when this process dies. Throws Interrupted when a signal ends the run (bench/run/interruption.h).
IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout);

}  // namespace halfmark::bench
