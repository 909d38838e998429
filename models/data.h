// Seeded data that needs no download: random tensors for single
// layers, procedural images or points with labels for models.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor/random.h"
#include "kernels/tensor/shape.h"
#include "models/anchors.h"
#include "models/data_kinds.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct Batch {
  std::vector<double> x;       // logical order of the subject's input shape
  std::vector<double> labels;  // of target_shape; empty for data without labels
};

// Of one sample of data boxes.
struct LabelledBoxes {
  std::vector<int64_t> classes;
  std::vector<Box> boxes;
};
LabelledBoxes boxes_of(const std::vector<double>& labels, int64_t sample);

// Batch number `step` of the stream `key`, with shape[0] samples. Equal arguments give equal numbers on every machine.
Batch draw_batch(DataKind kind, const Shape& shape, int64_t classes, RandomKey key, int64_t step);

}  // namespace halfmark::models
