// A matrix on a device of which tiles share a scale: MX and NVFP4 (number/block_scaled.h), and what the rules of training
// recipes make (number/quantizer.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/number/block_scaled.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// The value of an element is code * scale of its tile * tensor_scale / divisor.
struct Scaled {
  Tensor codes;              // [rows, k] e4m3, e5m2, e2m1, ...
  Tensor scales;             // [tiles of rows, tiles of k] e8m0, e4m3 with its sign ignored, or f32; empty: none
  Tensor tensor_scale = {};  // f32 [1]; empty: 1
  float divisor = 1;  // of tensor_scale: Transformer Engine's NVFP4 keeps the largest magnitude, 2688 times the scale
  int64_t tile_rows = 1,
          tile_depth = 0;   // extents of a tile; at the edges it may be smaller. Depth 0: equal parts of k
  bool transposed = false;  // codes are stored as [k, rows] and scales accordingly, with the tiles' extents

  int64_t rows() const { return codes.shape()[transposed ? 1 : 0]; }
  int64_t depth() const { return codes.shape()[transposed ? 0 : 1]; }
  // How many consecutive k share a scale.
  int64_t block() const;
  // Of the tile of an element, among the scales as stored.
  size_t tile_of(int64_t row, int64_t k) const;
  float tensor_factor() const;  // tensor_scale, or 1

  std::vector<double> values() const;  // [rows, k]; exact, if the divisor is a power of two
};

// `values` [rows, k] quantised along k, which must be a multiple of the format's block; see quantize(). Throws Error.
Scaled to_scaled(Device& device, const BlockFormat& format, std::span<const float> values, int64_t rows, int64_t k);

}  // namespace halfmark::kernels
