// The gate: judges whether a report is worse than another one, and where. Numbers are judged by limits. Fingerprints
// are compared if they are proved reproducible; stored times only on request and only on the same machine.
#pragma once

#include <string>

#include "reports/gate/gate_options.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// Throws ReportError for reports that cannot be compared: a duplicate id, an invalid time.
Judgement judge(const NamedReport& base, const NamedReport& candidate, const GateRules& rules,
                const GateOptions& options = {});

}  // namespace halfmark::reports
