// The formats that the harness `what_if` tries on each tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/number/quantizer.h"
#include "kernels/tensor/shape.h"

namespace halfmark::accuracy {

// A tensor as a matrix [rows, depth].
struct MatrixView {
  std::vector<float> values;
  size_t rows = 0, depth = 0;
};

// In which matrix a tensor is quantised.
enum class ViewOfTensor : uint8_t {
  products,  // depth: what products sum over; channels of activations, all inputs of one output of weights
  channels,  // a row for each channel: output channels of weights, channels of activations
};

// Of the values of a tensor: [n, c, h, w], [n, t, c] or [n, c]; a weight [out, ...].
MatrixView view_of_tensor(const std::vector<float>& values, const Shape& shape, bool is_weight, ViewOfTensor view);

// A matrix in a format and back. `clipped`: share of the elements beyond the largest number of their tile, by more than
// rounding.
struct FormattedMatrix {
  std::vector<double> values;
  double clipped = 0;
};

struct WhatIfFormat {
  std::string_view name, about;
  ViewOfTensor view;
  std::function<FormattedMatrix(const MatrixView&)> in_format;
};
std::span<const WhatIfFormat> what_if_formats();

struct WhatIfLoss {
  double nmse = 0;     // sum (decoded - given)^2 / sum given^2; 0 / 0 is 0
  double flushed = 0;  // share: not zero and became zero
};
WhatIfLoss what_is_lost(const std::vector<float>& given, const std::vector<double>& decoded);

}  // namespace halfmark::accuracy
