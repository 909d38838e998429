#include "bench/run/schedule.h"

#include <algorithm>

#include "bench/run/case_processes.h"

namespace halfmark::bench {

std::vector<Turn> schedule_of(size_t cases, int processes) {
  const size_t rounds = static_cast<size_t>(std::max(processes, 1));
  std::vector<Turn> turns;
  turns.reserve(rounds * cases);
  for (size_t round = 0; round < rounds; ++round)
    for (size_t place = 0; place < cases; ++place) turns.push_back({place, round});
  return turns;
}

bool is_due(const Turn& turn, const std::optional<Record>& known, int processes) {
  return !known || (!is_complete(*known, processes) && static_cast<size_t>(known->determinism.processes) <= turn.round);
}

}  // namespace halfmark::bench
