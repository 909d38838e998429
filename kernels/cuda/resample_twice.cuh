// Bilinear images of twice the size. The weights of a result are 3/4 of its nearest row or column and 1/4 of the next one,
// at every place, so that neighbouring results are computed from values that are read once. Beyond the border of an image
// its last row or column is repeated: 3/4 and 1/4 of one value are that value.
// Sums go first vertically, then horizontally, in every kernel here: the bits do not depend on which one runs. A sum of
// negative zeros is -0; of kernels that begin a sum with 0 it is +0.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/images.cuh"
#include "kernels/cuda/pixels.cuh"

namespace halfmark::kernels::cuda {

constexpr uint32_t kTwiceThreads = 256;

inline bool is_twice(Resampling resampling, const Image& small, const Image& large) {
  return resampling == Resampling::bilinear && large.h == 2 * small.h && large.w == 2 * small.w;
}

// A quarter of a number is exact unless it is subnormal.
template <class Wide>
__device__ __forceinline__ Wide mixed(Wide near, Wide next) {
  return fma(Wide(0.75), near, Wide(0.25) * next);
}
// Result k of those that go to a row or column of the image backward, of four, added to the sum of those before.
template <class Wide>
__device__ __forceinline__ Wide plus_share(int k, Wide value, Wide sum) {
  if (k == 0) return Wide(0.25) * value;
  return fma(k == 3 ? Wide(0.25) : Wide(0.75), value, sum);
}

__device__ __forceinline__ uint32_t within(int i, uint32_t size) {
  return static_cast<uint32_t>(min(max(i, 0), static_cast<int>(size) - 1));
}

// Elements `column` to column + kCount - 1 of a row that begins at `start`, and one on either side.
template <class Wide, uint32_t kCount, class Access>
__device__ __forceinline__ void load_with_sides(const Access& x, uint32_t start, uint32_t column, uint32_t width,
                                                Wide* values) {
  const uint32_t at = start + column;
  values[0] = x.template load_number<Wide>(column > 0 ? at - 1 : at);
  x.template load_numbers<Wide, kCount>(at, values + 1);
  values[kCount + 1] = x.template load_number<Wide>(column + kCount < width ? at + kCount : at + kCount - 1);
}

// Where rows are neighbours in memory: the number of a thread as its group of columns, its pair of rows, and the plane.
struct TwiceRows {
  uint32_t threads, height, width;  // of the small image
  Divisor groups, pairs;
  TwiceRows(const Image& small, uint32_t columns, uint32_t row_pairs)
      : threads(small.n * small.c * row_pairs * (small.w / columns)),
        height(small.h),
        width(small.w),
        groups(small.w / columns),
        pairs(row_pairs) {}
};

// Rows 2 pair - 1 and 2 pair of the result, which have the same two sources; kResults columns of them.
template <class Wide, uint32_t kResults, class Access>
__global__ void __launch_bounds__(kTwiceThreads) twice_rows(TwiceRows s, Access x, Access out) {
  constexpr uint32_t kColumns = kResults / 2;
  uint32_t group = blockIdx.x * kTwiceThreads + threadIdx.x;
  if (group >= s.threads) return;
  uint32_t pair = s.groups.divide(group);
  const uint32_t plane = s.pairs.divide(pair), column = group * kColumns, first_row = plane * s.height;
  Wide above[kColumns + 2], below[kColumns + 2];
  load_with_sides<Wide, kColumns>(x, (first_row + (pair > 0 ? pair - 1 : 0)) * s.width, column, s.width, above);
  load_with_sides<Wide, kColumns>(x, (first_row + min(pair, s.height - 1)) * s.width, column, s.width, below);
  const uint32_t place = ((first_row + pair) * 2 * s.width + column) * 2;
#pragma unroll
  for (uint32_t r = 0; r < 2; ++r) {
    if (r == 0 ? pair == 0 : pair == s.height) continue;
    Wide values[kColumns + 2], results[kResults];
#pragma unroll
    for (uint32_t k = 0; k < kColumns + 2; ++k)
      values[k] = r == 0 ? mixed(above[k], below[k]) : mixed(below[k], above[k]);
#pragma unroll
    for (uint32_t k = 0; k < kColumns; ++k)
      results[2 * k] = mixed(values[k + 1], values[k]), results[2 * k + 1] = mixed(values[k + 1], values[k + 2]);
    out.template store_all<Wide, kResults>(r == 0 ? place - 2 * s.width : place, results);
  }
}

// Rows 2 pair and 2 pair + 1 of the gradient of the small image, kColumns columns of them.
template <class Wide, uint32_t kColumns, class Access>
__global__ void __launch_bounds__(kTwiceThreads) twice_rows_backward(TwiceRows s, Access dy, Access dx) {
  constexpr uint32_t kValues = 2 * kColumns + 2;
  uint32_t group = blockIdx.x * kTwiceThreads + threadIdx.x;
  if (group >= s.threads) return;
  uint32_t pair = s.groups.divide(group);
  const uint32_t plane = s.pairs.divide(pair), column = group * kColumns;
  Wide along[2][kValues];
#pragma unroll
  for (int r = 0; r < 6; ++r) {
    const uint32_t row = within(4 * static_cast<int>(pair) - 1 + r, 2 * s.height);
    Wide values[kValues];
    load_with_sides<Wide, 2 * kColumns>(dy, (plane * 2 * s.height + row) * 2 * s.width, 2 * column, 2 * s.width,
                                        values);
#pragma unroll
    for (uint32_t k = 0; k < kValues; ++k) {
      if (r < 4) along[0][k] = plus_share(r, values[k], along[0][k]);
      if (r >= 2) along[1][k] = plus_share(r - 2, values[k], along[1][k]);
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < 2; ++r) {
    if (2 * pair + r >= s.height) continue;
    Wide sums[kColumns];
#pragma unroll
    for (uint32_t j = 0; j < kColumns; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[j] = plus_share(k, along[r][2 * j + k], sums[j]);
    dx.template store_all<Wide, kColumns>((plane * s.height + 2 * pair + r) * s.width + column, sums);
  }
}

// Four results, which have the same four sources: of rows 2 y - 1 and 2 y and columns 2 x - 1 and 2 x, of kCount channels.
template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kTwiceThreads) twice_pixels(Walk walk, Image xs, Image outs, Access x, Access out) {
  const uint32_t i = blockIdx.x * kTwiceThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const Steps from(xs, p), to(outs, p);
  const int y = static_cast<int>(p.y), column = static_cast<int>(p.x);
  Wide rows[2][2][kCount];  // of the result; of the sources' columns
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int source = static_cast<int>(within(column - 1 + k, xs.w));
    Wide above[kCount], below[kCount];
    load_numbers_of<Wide, kCount>(x, from.at(static_cast<int>(within(y - 1, xs.h)), source), above);
    load_numbers_of<Wide, kCount>(x, from.at(static_cast<int>(within(y, xs.h)), source), below);
#pragma unroll
    for (uint32_t c = 0; c < kCount; ++c)
      rows[0][k][c] = mixed(above[c], below[c]), rows[1][k][c] = mixed(below[c], above[c]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if ((r == 0 ? p.y == 0 : p.y == xs.h) || (k == 0 ? p.x == 0 : p.x == xs.w)) continue;
      Wide results[kCount];
#pragma unroll
      for (uint32_t c = 0; c < kCount; ++c) results[c] = mixed(rows[r][k][c], rows[r][1 - k][c]);
      store_some<Wide, kCount>(out, to.at(2 * y - 1 + r, 2 * column - 1 + k), results);
    }
}

// Rows 2 y and 2 y + 1 of the gradient of the small image: a pixel of each, of kCount channels.
template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kTwiceThreads)
    twice_pixels_backward(Walk walk, Image dys, Image dxs, Access dy, Access dx) {
  const uint32_t i = blockIdx.x * kTwiceThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const Steps from(dys, p), to(dxs, p);
  const int first_row = 4 * static_cast<int>(p.y) - 1, first_column = 2 * static_cast<int>(p.x) - 1;
  Wide sums[2][kCount];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int column = static_cast<int>(within(first_column + k, dys.w));
    Wide along[2][kCount];
#pragma unroll
    for (int r = 0; r < 6; ++r) {
      Wide values[kCount];
      load_numbers_of<Wide, kCount>(dy, from.at(static_cast<int>(within(first_row + r, dys.h)), column), values);
#pragma unroll
      for (uint32_t c = 0; c < kCount; ++c) {
        if (r < 4) along[0][c] = plus_share(r, values[c], along[0][c]);
        if (r >= 2) along[1][c] = plus_share(r - 2, values[c], along[1][c]);
      }
    }
#pragma unroll
    for (uint32_t c = 0; c < kCount; ++c)
      sums[0][c] = plus_share(k, along[0][c], sums[0][c]), sums[1][c] = plus_share(k, along[1][c], sums[1][c]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t row = 2 * p.y + static_cast<uint32_t>(r);
    if (row < dxs.h) store_some<Wide, kCount>(dx, to.at(static_cast<int>(row), static_cast<int>(p.x)), sums[r]);
  }
}

// Whether the kernels of rows run: a plain layout, and rows of whole accesses. An operand that begins elsewhere is read and
// written one element at a time by the same kernel.
inline bool has_twice_rows(const Image& small, const Image& large, uint32_t columns) {
  return !small.last && !large.last && small.w % columns == 0;
}

template <class Wide, class Access>
void start_twice(cudaStream_t stream, const Image& x, const Image& out, const Access& from, const Access& to) {
  constexpr uint32_t kResults = Access::kNeighbours;
  if (has_twice_rows(x, out, kResults / 2)) {
    const TwiceRows rows(x, kResults / 2, x.h + 1);
    twice_rows<Wide, kResults><<<blocks_for(rows.threads, kTwiceThreads), kTwiceThreads, 0, stream>>>(rows, from, to);
    return;
  }
  with_channels(x, out, from, to, [&](auto channels) {
    constexpr uint32_t kCount = decltype(channels)::value;
    const Walk walk({x.n, x.c, x.h + 1, x.w + 1, out.last}, kCount);
    twice_pixels<Wide, kCount>
        <<<blocks_for(walk.threads, kTwiceThreads), kTwiceThreads, 0, stream>>>(walk, x, out, from, to);
  });
}

template <class Wide, class Access>
void start_twice_backward(cudaStream_t stream, const Image& dy, const Image& dx, const Access& from, const Access& to) {
  constexpr uint32_t kColumns = Access::kNeighbours;
  const uint32_t row_pairs = (dx.h + 1) / 2;
  if (has_twice_rows(dx, dy, kColumns)) {
    const TwiceRows rows(dx, kColumns, row_pairs);
    twice_rows_backward<Wide, kColumns>
        <<<blocks_for(rows.threads, kTwiceThreads), kTwiceThreads, 0, stream>>>(rows, from, to);
    return;
  }
  with_channels(dy, dx, from, to, [&](auto channels) {
    constexpr uint32_t kCount = decltype(channels)::value;
    const Walk walk({dx.n, dx.c, row_pairs, dx.w, dx.last}, kCount);
    twice_pixels_backward<Wide, kCount>
        <<<blocks_for(walk.threads, kTwiceThreads), kTwiceThreads, 0, stream>>>(walk, dy, dx, from, to);
  });
}

}  // namespace halfmark::kernels::cuda
