// Losses: a table of kinds with PyTorch's definitions, each with its gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/layers/loss_layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

enum class LossKind : uint8_t {
  cross_entropy,
  binary_cross_entropy_with_logits,
  binary_cross_entropy,
  mse,
  smooth_l1,
  focal,
  ctc,
  detection,
};

// What a loss compares the output with.
enum class TargetKind : uint8_t {
  labels,     // i32: [n] for an output [n, classes], [n, t] for [n, t, classes], [n, h, w] for [n, classes, h, w]
  values,     // floating, of the output's shape
  boxes,      // floating, of the output's shape [n, anchors, classes + 4] with twice the last axis: detection_loss.h
  sequences,  // i32 [n, 2 + s] for an output [n, t, classes]: steps, number of labels, then the labels
};

struct LossRow {
  LossKind kind;
  std::string_view name;       // as in PyTorch; "cross_entropy"
  std::string_view about;      // one line
  std::string_view arguments;  // the members of LossSpec that it reads, separated by single spaces
  TargetKind targets;
};

std::span<const LossRow> loss_rows();
const LossRow& loss_named(std::string_view name);  // throws Error naming the known ones
const LossRow& row_of(LossKind kind);

// Defaults are PyTorch's and torchvision's.
struct LossSpec {
  LossKind kind = LossKind::cross_entropy;
  double smoothing = 0;                    // of labels, 0 .. 1
  std::optional<int64_t> ignored = {};     // positions with this label do not count
  std::vector<double> class_weights = {};  // empty: all 1
  double pos_weight = 1;                   // of the targets 1
  double beta = 1;                         // where the square ends; 0: |x - y|
  double alpha = 0.25, gamma = 2;          // weight of the targets 1 (negative: no weights), and the exponent
  int blank = 0;                           // the class that stands for no label
  bool zero_infinity = false;              // an impossible sequence has the loss 0
};

// Throws Error for an argument that cannot be.
std::unique_ptr<Loss> make_loss(const LossSpec& spec);

}  // namespace halfmark::models
