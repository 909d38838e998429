// The criterion of the harness `convergence`: does a policy reach the loss of fp32, measured by fp32's spread over seeds?
#pragma once

#include <vector>

#include "accuracy/namespaces.h"
#include "reports/record/measurement.h"

namespace halfmark::accuracy {

struct FindingsOfSeeds {
  std::vector<double> gaps;  // losses[i] - fp32[i]
  double gap = 0;            // their mean
  Range interval;            // of the mean, 90 %, Student's t
  // Half of the interval around fp32's mean that holds the loss of one more seed with 95 %: t sd sqrt(1 + 1 / seeds).
  double spread = 0;
  // 1: the interval lies within +-spread. -1: it lies beyond, or a loss is not finite. 0: neither is shown.
  int as_fp32 = 0;
};

// `losses[i]` and `fp32[i]` are of the same seed: same start, same data. Throws Error for fewer than 3 seeds and
// for lists of different lengths.
FindingsOfSeeds compare_seeds(const std::vector<double>& losses, const std::vector<double>& fp32);

}  // namespace halfmark::accuracy
