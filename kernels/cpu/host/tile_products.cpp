#include "kernels/cpu/host/tile_products.h"

#include <algorithm>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halfmark::kernels::host {
namespace {

// The operands of tile_products; `b` and `out` begin at the columns of a tile.
struct TileOperands {
  TileLeft a;
  int64_t depth;
  const float* b;
  int64_t b_stride;
  float* out;
  int64_t out_stride;
  bool adds;

  TileOperands at(int64_t row, int64_t column) const {
    TileOperands own = *this;
    own.a.data += row * a.row_stride;
    own.b += column, own.out += row * out_stride + column;
    return own;
  }
};

void plain_tile(const TileOperands& t, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    float* sums = t.out + r * t.out_stride;
    if (!t.adds) std::fill_n(sums, columns, 0.0F);
    for (int64_t k = 0; k < t.depth; ++k) {
      const float factor = t.a.data[r * t.a.row_stride + k * t.a.depth_stride];
      for (int64_t c = 0; c < columns; ++c) sums[c] = std::fma(factor, t.b[k * t.b_stride + c], sums[c]);
    }
  }
}

#if defined(__x86_64__)

// `rows` of kRows are stored; the others repeat the first. Sixteen or eight sums in registers hide the latency of the
// multiply-add, and a load serves as many of them as there are rows or vectors.
template <int64_t kRows, int64_t kVectors>
__attribute__((target("avx512f"))) void tile_in_avx512(const TileOperands& t, int64_t rows) {
  __m512 sum[kRows][kVectors];
  const float* left[kRows];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
    left[r] = t.a.data + (r < rows ? r : 0) * t.a.row_stride;
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v)
      sum[r][v] = t.adds && r < rows ? _mm512_loadu_ps(t.out + r * t.out_stride + 16 * v) : _mm512_setzero_ps();
  }
  const float* b = t.b;
  for (int64_t k = 0; k < t.depth; ++k, b += t.b_stride) {
    __m512 right[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) right[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const __m512 factor = _mm512_set1_ps(left[r][k * t.a.depth_stride]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(factor, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v)
      if (r < rows) _mm512_storeu_ps(t.out + r * t.out_stride + 16 * v, sum[r][v]);
}

// The same with half as many registers of half the width. It is written again because an intrinsic can only be used in a
// function that is compiled for its instructions.
__attribute__((target("avx2,fma"))) void tile_in_avx2(const TileOperands& t, int64_t rows) {
  constexpr int64_t kRows = 4, kVectors = 2;
  __m256 sum[kRows][kVectors];
  const float* left[kRows];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r) {
    left[r] = t.a.data + (r < rows ? r : 0) * t.a.row_stride;
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v)
      sum[r][v] = t.adds && r < rows ? _mm256_loadu_ps(t.out + r * t.out_stride + 8 * v) : _mm256_setzero_ps();
  }
  const float* b = t.b;
  for (int64_t k = 0; k < t.depth; ++k, b += t.b_stride) {
    __m256 right[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) right[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      const __m256 factor = _mm256_set1_ps(left[r][k * t.a.depth_stride]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = _mm256_fmadd_ps(factor, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v)
      if (r < rows) _mm256_storeu_ps(t.out + r * t.out_stride + 8 * v, sum[r][v]);
}

void tiles_in_avx512(const TileOperands& t, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += kTileRows)
    for (int64_t c = 0; c < columns; c += 32) {
      const TileOperands own = t.at(r, c);
      const int64_t count = rows - r;
      if (columns - c > 16)
        count > 4 ? tile_in_avx512<8, 2>(own, count) : tile_in_avx512<4, 2>(own, count);
      else
        tile_in_avx512<8, 1>(own, count);
    }
}

void tiles_in_avx2(const TileOperands& t, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += 4)
    for (int64_t c = 0; c < columns; c += 16) tile_in_avx2(t.at(r, c), rows - r);
}

#endif

}  // namespace

// NOLINTNEXTLINE(readability-non-const-parameter): out is written by the tiles
void tile_products(const TileLeft& a, int64_t rows, int64_t depth, const float* b, int64_t b_stride, float* out,
                   int64_t out_stride, int64_t columns, bool adds, Vectors vectors) {
  const TileOperands operands{a, depth, b, b_stride, out, out_stride, adds};
  const int64_t padded = padded_columns(columns);
  switch (vectors) {
#if defined(__x86_64__)
    case Vectors::avx512:
      return tiles_in_avx512(operands, rows, padded);
    case Vectors::avx2:
      return tiles_in_avx2(operands, rows, padded);
#else
    case Vectors::avx512:
    case Vectors::avx2:
#endif
    case Vectors::baseline:
      break;
  }
  plain_tile(operands, rows, padded);
}

}  // namespace halfmark::kernels::host
