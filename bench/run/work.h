// How much a case computes and moves, as numbers of its record: what times and bytes are compared with.
#pragma once

#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Of one batch of a subject, whatever the precision.
struct Work {
  double parameters = 0;     // trained numbers
  double forward_flops = 0;  // of matmul and convolution, a multiply-add is two; 0 where the subject has neither
  double step_flops = 0;     // forward and backward
  Shape input, output;
};
Work work_of(const Subject& subject);  // builds the subject once in a process

// The bytes that a forward pass under this policy moves at least: each parameter as it is stored, the input as it
// arrives and the output in the policy's low type, each once.
double least_forward_bytes(const Subject& subject, const Policy& policy);

// Adds them to a record that was measured; of kind `information`, so that no gate judges them.
void add_work(const TrialSpec& spec, Record& record);

// Their units and formulas: the metrics that every record has.
const std::vector<MetricRow>& work_table();

}  // namespace halfmark::bench
