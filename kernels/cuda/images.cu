// Layout conversion of images.
#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kTile = 32, kTileThreads = 8;

// [outer][rows][columns] to [outer][columns][rows] through a
// tile in shared memory; the extra column avoids bank conflicts.
template <class T>
__global__ void __launch_bounds__(kTile* kTileThreads) transpose(uint32_t rows, uint32_t columns, const T* x, T* out) {
  __shared__ T tile[kTile][kTile + 1];
  const uint32_t wide = (columns + kTile - 1) / kTile, high = (rows + kTile - 1) / kTile;
  const uint32_t column0 = blockIdx.x % wide * kTile, row0 = blockIdx.x / wide % high * kTile,
                 image = blockIdx.x / wide / high;
  const uint32_t start = image * rows * columns, lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  for (uint32_t r = line; r < kTile; r += kTileThreads)
    if (row0 + r < rows && column0 + lane < columns) tile[r][lane] = x[start + (row0 + r) * columns + column0 + lane];
  __syncthreads();
  for (uint32_t r = line; r < kTile; r += kTileThreads)
    if (column0 + r < columns && row0 + lane < rows) out[start + (column0 + r) * rows + row0 + lane] = tile[lane][r];
}

// Elements of 16 bits, two of them at a time, so that a warp reads and writes 128 bytes: rows and columns are even. In shared
// memory even rows come before odd ones, so that the lanes of a warp, which have a pair of rows each, use every bank once.
constexpr uint32_t kPairTile = 64, kPairs = kPairTile / 2, kPairLines = 8;
__global__ void __launch_bounds__(kPairs* kPairLines)
    transpose_pairs(uint32_t rows, uint32_t columns, const uint32_t* x, uint32_t* out) {
  __shared__ uint32_t tile[2][kPairs][kPairs + 1];
  const uint32_t wide = (columns + kPairTile - 1) / kPairTile, high = (rows + kPairTile - 1) / kPairTile;
  const uint32_t column0 = blockIdx.x % wide * kPairTile, row0 = blockIdx.x / wide % high * kPairTile,
                 image = blockIdx.x / wide / high;
  const uint32_t start = image * (rows / 2) * columns, lane = threadIdx.x % kPairs, line = threadIdx.x / kPairs;
  uint32_t pairs[kPairTile / kPairLines];
#pragma unroll
  for (uint32_t k = 0; k < kPairTile / kPairLines; ++k) {
    const uint32_t r = line + k * kPairLines;
    if (row0 + r < rows && column0 + 2 * lane < columns)
      pairs[k] = x[start + ((row0 + r) * columns + column0) / 2 + lane];
  }
#pragma unroll
  for (uint32_t k = 0; k < kPairTile / kPairLines; ++k) {
    const uint32_t r = line + k * kPairLines;
    if (row0 + r < rows && column0 + 2 * lane < columns) tile[r % 2][r / 2][lane] = pairs[k];
  }
  __syncthreads();
  if (row0 + 2 * lane >= rows) return;
#pragma unroll
  for (uint32_t k = 0; k < kPairs / kPairLines; ++k) {
    const uint32_t pair = line + k * kPairLines, column = column0 + 2 * pair;
    if (column >= columns) continue;
    const uint32_t upper = tile[0][lane][pair], lower = tile[1][lane][pair],
                   to = start + (column * rows + row0) / 2 + lane;
    out[to] = __byte_perm(upper, lower, 0x5410);
    out[to + rows / 2] = __byte_perm(upper, lower, 0x7632);
  }
}

template <class T>
void start_transpose(cudaStream_t stream, uint32_t outer, uint32_t rows, uint32_t columns, const void* x, void* out) {
  if constexpr (sizeof(T) == 2) {
    const auto in_pairs = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 4 == 0; };
    if (rows % 2 == 0 && columns % 2 == 0 && in_pairs(x) && in_pairs(out)) {
      const uint32_t tiles = outer * blocks_for(rows, kPairTile) * blocks_for(columns, kPairTile);
      transpose_pairs<<<tiles, kPairs * kPairLines, 0, stream>>>(rows, columns, static_cast<const uint32_t*>(x),
                                                                 static_cast<uint32_t*>(out));
      return;
    }
  }
  const uint32_t blocks = outer * blocks_for(rows, kTile) * blocks_for(columns, kTile);
  transpose<T>
      <<<blocks, kTile * kTileThreads, 0, stream>>>(rows, columns, static_cast<const T*>(x), static_cast<T*>(out));
}

}  // namespace

void launch_reorder(cudaStream_t stream, uint32_t outer, uint32_t channels, uint32_t pixels, size_t size, bool to_last,
                    const void* x, void* out) {
  const uint32_t rows = to_last ? channels : pixels, columns = to_last ? pixels : channels;
  switch (size) {
    case 1:
      start_transpose<uint8_t>(stream, outer, rows, columns, x, out);
      break;
    case 2:
      start_transpose<uint16_t>(stream, outer, rows, columns, x, out);
      break;
    case 4:
      start_transpose<uint32_t>(stream, outer, rows, columns, x, out);
      break;
    case 8:
      start_transpose<uint64_t>(stream, outer, rows, columns, x, out);
      break;
    default:
      throw Error("no reorder kernel for elements of " + std::to_string(size) + " bytes");
  }
  launched("reorder");
}

}  // namespace halfmark::kernels::cuda
