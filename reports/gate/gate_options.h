// Options of one call of the gate, in addition to its rules.
#pragma once

#include <string>

#include "reports/gate/acknowledgement.h"
#include "reports/gate/time_limits.h"

namespace halfmark::reports {

struct GateOptions {
  bool strict_bits = false;       // a change without acknowledgement is a breach
  bool same_environment = false;  // a different environment makes the verdict ENV_SUSPECT
  bool time = false;              // judge times by a test; what it cannot judge is inconclusive
  Acknowledgements acknowledgements{};
  TimeHistory time_history{};        // of the machine: limits of stored times, and the shift between days for --time
  std::string today = "0000-01-01";  // entries that expired before this day are ignored
};

}  // namespace halfmark::reports
