// Decides whether the times of a record are valid, from what the record says about its measurement.
#pragma once

#include <optional>
#include <string>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// The reason why the times of a measured record are not valid: an emulated kernel in a timed phase, a lowered clock of the
// GPU, other work on it or on the machine, a control that does not come out as 1, or a median that is too uncertain.
// nullopt: they are valid, or the record has none.
std::optional<std::string> why_times_mislead(const Record& record);

}  // namespace halfmark::bench
