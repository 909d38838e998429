// The gate: is a report worse than another, and where? Numbers are deterministic and judged by limits, fingerprints
// where they are proved to be the same every time; stored times only on request and only on the same machine.
#pragma once

#include <string>

#include "reports/gate/gate_options.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// Throws ReportError about reports that cannot be joined: an id that is there twice, a time that is none.
Judgement judge(const NamedReport& base, const NamedReport& candidate, const GateRules& rules,
                const GateOptions& options = {});

}  // namespace halfmark::reports
