// Weights quantised to int8 after a training, symmetric: w = scale q with whole numbers q from -127 to 127, and the scale of a
// channel is its largest magnitude / 127, as in Krishnamoorthi 2018 (arXiv:1806.08342), section 2.2, with all zero points 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/tensor/shape.h"

namespace halfmark::accuracy {

enum class Int8Scales : uint8_t {
  of_channels,  // one for each entry of the first axis: output channels of a linear layer or a convolution, rows of a table
  of_tensor,  // one
};

// Whether the parameter is quantised: matrices and filters are; biases and parameters of norms, of one axis, stay floats.
bool is_int8_weight(const Shape& shape);
int64_t int8_channels(const Shape& shape, Int8Scales scales);  // how many scales a parameter of this shape has

// The numbers that are left of `values`, whose `channels` parts are of equal length and follow each other. The scale is rounded
// to fp32. A channel of zeros stays. Throws Error if the parts are not of equal length, or a value is not finite.
std::vector<double> with_int8_values(std::span<const double> values, int64_t channels);

}  // namespace halfmark::accuracy
