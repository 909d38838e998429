// The order in which a run measures its cases.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct Turn {
  size_t place;  // index of the case in the plan
  size_t round;  // number of processes that have measured it before
};

// Rounds over all cases, so that the processes of one case are spread
// over the whole run. processes = 0: one round, in this process.
std::vector<Turn> schedule_of(size_t cases, int processes);

// True if this turn still has to be measured; `known` is the record of the case so far.
bool is_due(const Turn& turn, const std::optional<Record>& known, int processes);

}  // namespace halfmark::bench
