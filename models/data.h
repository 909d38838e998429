// Seeded data that needs no download: random tensors for single
// layers, procedural images or points with labels for models.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor/random.h"
#include "kernels/tensor/shape.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct Batch {
  std::vector<double> x;       // logical order of the subject's input shape
  std::vector<double> labels;  // empty for subjects without labels
};

enum class DataKind : uint8_t {
  normal,  // independent N(0, 1) numbers, no labels
  images,  // ten classes of shapes with random position, contrast and noise: a linear model fails, a small CNN learns
  points,  // vectors of a nonlinear ten-class problem, for multilayer perceptrons
};

// Batch number `step` of the stream `key`, with shape[0] samples. Equal arguments give equal numbers on every machine.
Batch draw_batch(DataKind kind, const Shape& shape, int64_t classes, RandomKey key, int64_t step);

}  // namespace halfmark::models
