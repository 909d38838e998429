// Combines the measurements of one case from several processes into one record.
#pragma once

#include <optional>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// The record after one more process. It has the numbers of the first process, and as samples of time.process the median
// hot step of every process. It counts the processes whose bits differ from the first. Processes are replicates, unlike
// the steps of one process: each has its own memory placement and clock speeds.
// If the first process was disturbed (suspect) and a later one was not, the later one replaces its numbers. If the bits
// differ, each number takes its worst value, and all values are kept as its samples. A process that could not measure
// makes the record failed.
Record with_process(std::optional<Record> so_far, Record run);

// True when the record needs no further process: all `processes` are done, or one was skipped or failed.
bool is_complete(const Record& record, int processes);

}  // namespace halfmark::bench
