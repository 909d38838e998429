// How good an output is, apart from its loss.
#pragma once

#include <vector>

#include "kernels/tensor/shape.h"
#include "models/data.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The share of labels whose class has the largest number of the output; labels kUnlabelled do not count, and a NaN makes
// its label wrong. Of speech: the share of sequences whose symbols are all right, where the class with the largest number
// is taken at each step, repetitions count once, and class 0 separates. `output` and `values`: of a batch of this kind.
double accuracy_of(DataKind kind, const Shape& output, const std::vector<double>& values,
                   const std::vector<double>& labels);

}  // namespace halfmark::models
