// A case in a process of its own: one that crashes or hangs costs its own record and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reports/report.h"

namespace halfmark {

struct IsolatedRun {
  std::optional<Record> record;  // nothing: see reason
  std::string reason;            // "killed after 30 s", "crashed with signal 11 (Segmentation fault)"
  double seconds = 0;
};

// Starts `program run --case ID` and reads what it writes. timeout in seconds, 0 = none; a case that takes longer is
// killed.
IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout);

}  // namespace halfmark
