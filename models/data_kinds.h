// The kinds of drawn data: their inputs, labels and names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/tensor/shape.h"
#include "models/namespaces.h"

namespace halfmark::models {

enum class DataKind : uint8_t {
  normal,   // independent N(0, 1) numbers, no labels
  images,   // ten classes of shapes with random position, contrast and noise: a linear model fails, a small CNN learns
  points,   // vectors of a nonlinear ten-class problem, for multilayer perceptrons
  streets,  // images with a label for each pixel, and small objects
  tokens,   // classified sequences
  text,     // characters; the label of each is the next one
  speech,   // features over time, and the symbols that they stand for
  indices,  // random whole numbers below `classes`, no labels: the input of an embedding alone
  boxes,    // images of objects, and a box around each
  logits,   // N(0, 1) numbers with a random label for each place: the input of a loss alone
};
inline constexpr int64_t kTokenKinds = 64;      // in sequences of tokens
inline constexpr int64_t kUnlabelled = 255;     // pixels of streets that do not count, as in Cityscapes
int64_t most_symbols(int64_t length);           // of speech of so many steps
inline constexpr int64_t kMostObjects = 3;      // in an image of boxes
inline constexpr int64_t kNumbersOfObject = 5;  // class (-1: no object), left, top, right, bottom in pixels

struct DataRow {
  DataKind kind;
  std::string_view name, about;
  int rank = 0;               // of the input, with the batch; 0: any
  int64_t least_classes = 0;  // 0: it has no classes
  int64_t drawn_classes = 0;  // a classifier may have more, which never occur
  bool draws_all = false;     // drawn labels use all of drawn_classes, so the model needs at least as many outputs
  bool has_indices = false;   // the input is whole numbers, as of an embedding
  bool from_layer =
      false;  // the input is that of a layer in a network, not of a data loader: in the low dtype of a policy
  bool has_classes() const { return least_classes > 0; }
  bool has_labels() const { return has_classes() && kind != DataKind::indices; }
};
std::span<const DataRow> data_rows();
const DataRow& data_named(std::string_view name);  // throws Error naming the known ones
const DataRow& row_of(DataKind kind);
// How many classes a classifier of drawn data has at least; for data of files fewer can do.
int64_t least_drawn_classes(DataKind kind);

// Of the labels: [n], one for each pixel or character, [n, objects, numbers] for boxes, or [n, 2 + symbols] for speech: 0, which stands for the steps of
// the output, the number of symbols, the symbols.
Shape target_shape(DataKind kind, const Shape& input);
// Throws Error that says which output classifies these data.
void check_output(DataKind kind, const Shape& input, int64_t classes, const Shape& output);

}  // namespace halfmark::models
