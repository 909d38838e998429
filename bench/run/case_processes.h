// A case measured in several processes of its own: what they say together.
#pragma once

#include <optional>

#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// The record after one more process: the first one's numbers, the median hot step of every process as samples of
// time.process, and how many of them gave other bits than the first. Processes, unlike the steps of one, are
// replicates: each has its own place in memory and its own clocks. Where only the first was disturbed (suspect) a later
// one has the word. Where the bits differ, the worst value of each number has it, and all are kept as its samples. A
// process that could not measure fails the record.
Record with_process(std::optional<Record> so_far, Record run);

// Whether so many processes are enough for this record: they are done, or one was skipped or failed.
bool is_complete(const Record& record, int processes);

}  // namespace halfmark::bench
