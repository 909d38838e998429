// Products of small fp32 matrices in registers: tiles of four rows and one or two vectors of sixteen columns. Each element
// is a chain of fused multiply-adds in increasing depth, whatever instructions are used; without an instruction for them
// they are slow.
#pragma once

#include <cstdint>
#include <cstring>

namespace halfmark::kernels::host {

inline constexpr int64_t kTileRows = 4, kTileLanes = 16;

// The least multiple of kTileLanes that is not below `columns`.
inline int64_t padded_columns(int64_t columns) { return (columns + kTileLanes - 1) / kTileLanes * kTileLanes; }

// The operand on the left: element (row, k) is data[row * row_stride + k * depth_stride].
struct TileLeft {
  const float* data;
  int64_t row_stride, depth_stride;
};

namespace tile_detail {

using Lanes = float __attribute__((vector_size(kTileLanes * sizeof(float))));

// a += factor b, rounded once.
inline void add_fused(Lanes& a, float factor, const Lanes& b) {
#pragma GCC unroll 16
  for (int64_t lane = 0; lane < kTileLanes; ++lane) a[lane] = __builtin_fmaf(factor, b[lane], a[lane]);
}

template <int64_t vectors>
inline void tile(const TileLeft& a, int64_t rows, int64_t depth, const float* b, int64_t b_stride, float* out,
                 int64_t out_stride, bool adds) {
  Lanes sum[kTileRows][vectors] = {};
  const float* left[kTileRows];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kTileRows; ++r)
    left[r] = a.data + (r < rows ? r : 0) * a.row_stride;  // rows beyond are not stored
  if (adds)
    for (int64_t r = 0; r < rows; ++r) std::memcpy(sum[r], out + r * out_stride, sizeof sum[r]);
  for (int64_t k = 0; k < depth; ++k) {
    Lanes right[vectors];
    std::memcpy(right, b + k * b_stride, sizeof right);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTileRows; ++r) {
      const float factor = left[r][k * a.depth_stride];
#pragma GCC unroll 2
      for (int64_t v = 0; v < vectors; ++v) add_fused(sum[r][v], factor, right[v]);
    }
  }
  for (int64_t r = 0; r < rows; ++r) std::memcpy(out + r * out_stride, sum[r], sizeof sum[r]);
}

}  // namespace tile_detail

// out[r, c] = (adds ? out[r, c] : 0) + sum over k < depth of a[r, k] b[k, c] for c < padded_columns(columns), so rows of b
// and out have room for as many.
inline void tile_products(const TileLeft& a, int64_t rows, int64_t depth, const float* b, int64_t b_stride, float* out,
                          int64_t out_stride, int64_t columns, bool adds) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const TileLeft own{a.data + r * a.row_stride, a.row_stride, a.depth_stride};
    const int64_t count = rows - r < kTileRows ? rows - r : kTileRows;
    for (int64_t c = 0; c < columns; c += 2 * kTileLanes) {
      if (columns - c > kTileLanes)
        tile_detail::tile<2>(own, count, depth, b + c, b_stride, out + r * out_stride + c, out_stride, adds);
      else
        tile_detail::tile<1>(own, count, depth, b + c, b_stride, out + r * out_stride + c, out_stride, adds);
    }
  }
}

}  // namespace halfmark::kernels::host
