// A matrix on a device in a format in which blocks share a scale (MX, NVFP4: number/block_scaled.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/number/block_scaled.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// The value of an element is code * scale * tensor_scale.
struct Scaled {
  Tensor codes;   // [rows, k] e4m3, e5m2, e2m1, ...
  Tensor scales;  // [rows, k / block] e8m0, or e4m3 with its sign ignored
  float tensor_scale = 1;

  std::vector<double> values() const;  // [rows, k], exact
};

// `values` [rows, k] quantised along k, which must be a multiple of the format's block; see quantize(). Throws Error.
Scaled to_scaled(Device& device, const BlockFormat& format, std::span<const float> values, int64_t rows, int64_t k);

}  // namespace halfmark::kernels
