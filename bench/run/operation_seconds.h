// How the time of a training step divides between operations.
#pragma once

#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

const std::vector<MetricRow>& operation_table();

// time.operation of hot steps, launched kernel by kernel. Nothing where launches of a step cannot be enqueued while a GPU pauses.
void write_operation_seconds(Trial& trial, FindingsWriter& out);

}  // namespace halfmark::bench
