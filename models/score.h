// How good an output is, apart from its loss.
#pragma once

#include <cstdint>
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

// Of a trained model on samples that it was not trained on.
struct Evaluation {
  double loss = 0;      // mean of the losses of the batches, weighted by their samples
  double accuracy = 0;  // share of all labels, sequences or objects that are right
  int64_t samples = 0;
  // Standard error of the accuracy as an estimate for the distribution of the data: sqrt(q (1 - q) / samples) with
  // q = (right + 1) / (samples + 2), so that it is not 0 when all or none are right. It says nothing about other seeds.
  double accuracy_error() const;
};

}  // namespace halfmark::models
