// Gradients as a weighted sum of those of micro-batches.
#pragma once

#include <span>
#include <vector>

#include "accuracy/namespaces.h"

namespace halfmark::accuracy {

struct WeightedSum {
  std::vector<double> weights;  // of the parts, by least squares
  double unexplained = 0;       // norm of the rest / norm of the sum
};

// The weights with which `parts` sum up to `sum`. Parts that depend on one another have weights of any size.
WeightedSum fit_sum(std::span<const std::vector<double>> parts, std::span<const double> sum);

}  // namespace halfmark::accuracy
