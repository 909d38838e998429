// Seeded data that needs no download: random tensors for single
// layers, procedural images or points with labels for models.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
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

struct DataRow {
  DataKind kind;
  std::string_view name, about;
  bool has_labels;
  int rank;  // of the input, with the batch; 0: any
};
std::span<const DataRow> data_rows();
const DataRow& data_named(std::string_view name);  // throws Error naming the known ones
const DataRow& row_of(DataKind kind);

// Batch number `step` of the stream `key`, with shape[0] samples. Equal arguments give equal numbers on every machine.
Batch draw_batch(DataKind kind, const Shape& shape, int64_t classes, RandomKey key, int64_t step);

}  // namespace halfmark::models
