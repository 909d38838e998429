// Operations and bytes of a case, as numbers of its record, with which times and memory can be compared.
#pragma once

#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// The work of one batch of a subject, independent of the precision.
struct Work {
  double parameters = 0;     // trained numbers
  double forward_flops = 0;  // of matmul and convolution, a multiply-add is two; 0 if the subject has neither
  double step_flops = 0;     // forward and backward
  Shape input, output;
};
Work work_of(const Subject& subject);  // builds the subject once in a process

// Minimum number of bytes that a forward pass under this policy moves: parameters and input as they are stored, and the
// output in the policy's low type, each once.
double least_forward_bytes(const Subject& subject, const Policy& policy, const Settings& settings = {});

// Adds them to a measured record, with kind `information`, so that no gate judges them.
void add_work(const TrialSpec& spec, Record& record);

// Their units and formulas. Every record has these metrics.
const std::vector<MetricRow>& work_table();

}  // namespace halfmark::bench
