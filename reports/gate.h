// The gate: is a report worse than another, and where? Numbers are deterministic and judged by limits, fingerprints
// where they are proved to be the same every time; stored times only on request and only on the same machine.
#pragma once

#include <string>

#include "reports/acknowledgement.h"
#include "reports/compare.h"
#include "reports/gate_rules.h"
#include "reports/judgement.h"

namespace halfmark {

struct GateOptions {
  bool strict_bits = false;       // a change that nobody acknowledged is a breach
  bool same_environment = false;  // another environment makes the verdict ENV_SUSPECT
  bool time = false;              // times are judged where they can be
  Acknowledgements acknowledgements{};
  std::string today = "0000-01-01";  // entries that expired before this day do not count
};

// Throws ReportError about reports that cannot be joined: an id that is there twice, a time that is none.
Judgement judge(const NamedReport& base, const NamedReport& candidate, const GateRules& rules,
                const GateOptions& options = {});

}  // namespace halfmark
