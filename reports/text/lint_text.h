// The section "lint" of a report as text.
#pragma once

#include <string>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// Each rule that found a mistake: in which cases, by which numbers, and what to do; apart from these the mistakes of cases
// that planted or expected one. Empty if no case was examined.
std::string lint_text(const Report& report, const TextOptions& options);

}  // namespace halfmark::reports
