// How good an output is, apart from its loss.
#pragma once

#include <vector>

#include "kernels/tensor/shape.h"
#include "models/data.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The share of labels whose class has the largest number of the output; labels kUnlabelled do not count, and a NaN makes
// its label wrong. Of speech: the share of sequences whose symbols are all right, where the class with the largest number
// is taken at each step, repetitions count once, and class 0 separates. Of boxes: the share of objects that are found. Among
// the anchors whose decoded box and the object's have an intersection over union of at least 0.5, the one with the largest
// number of any class decides: the object is found if that number is of its class. False boxes cost nothing. `input`,
// `output` and `values`: of a batch of this kind.
double accuracy_of(DataKind kind, const Shape& input, const Shape& output, const std::vector<double>& values,
                   const std::vector<double>& labels);

}  // namespace halfmark::models
