// Products of small fp32 matrices in registers, a tile of rows and columns at a time. Each element is a chain of fused
// multiply-adds in increasing depth, whatever instructions are used; without an instruction for them they are slow.
#pragma once

#include <cstdint>

#include "kernels/cpu/host/vectors.h"

namespace halfmark::kernels::host {

// Rows are computed this many at a time: a caller that needs fewer columns for its first rows calls with as many.
inline constexpr int64_t kTileRows = 8;
// Columns of whole vectors of the widest instructions.
inline constexpr int64_t kTileLanes = 16;

// The least multiple of kTileLanes that is not below `columns`.
inline int64_t padded_columns(int64_t columns) { return (columns + kTileLanes - 1) / kTileLanes * kTileLanes; }

// The operand on the left: element (row, k) is data[row * row_stride + k * depth_stride].
struct TileLeft {
  const float* data;
  int64_t row_stride, depth_stride;
};

// out[r, c] = (adds ? out[r, c] : 0) + sum over k < depth of a[r, k] b[k, c] for c < padded_columns(columns), so rows of b
// and out have room for as many. `vectors`: for tests; this CPU must have them.
void tile_products(const TileLeft& a, int64_t rows, int64_t depth, const float* b, int64_t b_stride, float* out,
                   int64_t out_stride, int64_t columns, bool adds, Vectors vectors = widest_vectors());

}  // namespace halfmark::kernels::host
