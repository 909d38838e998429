// The order in which a run measures its cases.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct Turn {
  size_t place;  // of the case in the plan
  size_t round;  // how many processes have measured it before
};

// Round after round through all cases, so that the processes of one case are spread over the whole run. processes 0:
// one round, in this process.
std::vector<Turn> schedule_of(size_t cases, int processes);

// Whether the turn is still to be taken; `known` is the record of the case so far.
bool is_due(const Turn& turn, const std::optional<Record>& known, int processes);

}  // namespace halfmark::bench
