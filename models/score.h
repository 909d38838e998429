// How good an output is, apart from its loss.
#pragma once

#include <vector>

#include "kernels/tensor/shape.h"
#include "models/data.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Of labels, sequences or objects.
struct Score {
  double right = 0, counted = 0;
  double share() const { return counted > 0 ? right / counted : 0; }
};

// A label is right if its class has the largest number of the output; labels kUnlabelled do not count, and a NaN makes
// its label wrong. Speech counts sequences: all symbols must be right, where the class with the largest number
// is taken at each step, repetitions count once, and class 0 separates. Boxes count objects: among
// the anchors whose decoded box and the object's have an intersection over union of at least 0.5, the one with the largest
// number of any class decides; the object is found if that number is of its class. False boxes cost nothing. `input`,
// `output` and `values`: of a batch of this kind.
Score score_of(DataKind kind, const Shape& input, const Shape& output, const std::vector<double>& values,
               const std::vector<double>& labels);

}  // namespace halfmark::models
