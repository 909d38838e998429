// Times whole training steps with hot caches.
#pragma once

#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// roofline.bytes and roofline.flops: what the operations of a step read and write, and multiply. Takes a step.
void write_operands_of_step(Trial& trial, FindingsWriter& out);

// The steps of this policy, of a second trial of it (the control) and of fp32 in turn; of graphs also the same step launched
// kernel by kernel. Writes the ratios between them and under which conditions they were timed. Returns the seconds of this
// policy's steps. The trial has a loaded batch.
std::vector<double> time_hot_steps(Trial& trial, FindingsWriter& out);

}  // namespace halfmark::bench
