// Layout conversion of images.
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

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

// Elements of one access.
template <class T>
constexpr uint32_t kTogether = 16 / sizeof(T);
template <class T>
__device__ __forceinline__ bool is_together(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// The same where columns are few, or rows: kernels of convolutions, images of three colours. A block has a strip of the
// long axis, or some whole images. On the side where the short axis is the last one, all of it is one piece of memory; on the
// other side it is lines of the strip.
constexpr uint32_t kMostShort = 16, kStripBytes = 16384, kStripThreads = 256;
struct Strips {
  uint32_t outer, length, shorts;  // axes
  uint32_t strip, images;          // of a block; several images only if they are whole
  // 16 bytes that are left free behind every `shorts` of them, so that their number is odd: the threads of a warp, which
  // have one of these groups each, then use all banks of shared memory.
  __host__ __device__ uint32_t gap() const { return shorts % 2 == 0 ? 1 : 0; }
  __host__ __device__ uint32_t of_image() const { return (length + strip - 1) / strip; }
};
template <class T, bool kShortIsLast>
__global__ void __launch_bounds__(kStripThreads) transpose_strips(Strips s, const T* x, T* out) {
  constexpr uint32_t N = kTogether<T>;
  __shared__ alignas(16) T kept[kStripBytes / sizeof(T)];  // [images][strip][shorts], with gaps
  const uint32_t strips = s.of_image(), image = blockIdx.x / strips * s.images, first = blockIdx.x % strips * s.strip,
                 count = min(s.strip, s.length - first), images = min(s.images, s.outer - image),
                 all = images * count * s.shorts;
  const uint32_t start = image * s.length * s.shorts;
  // move(place in the piece, place in `kept`) for `values` neighbours of the piece that begins at `data`.
  const auto each_of_piece = [&](const T* data, auto move) {
    const uint32_t packs = is_together(data) ? all / N : 0;
    for (uint32_t i = threadIdx.x; i < packs; i += kStripThreads)
      move(std::integral_constant<uint32_t, N>(), i * N, (i + i / s.shorts * s.gap()) * N);
    for (uint32_t i = packs * N + threadIdx.x; i < all; i += kStripThreads)
      move(std::integral_constant<uint32_t, 1>(), i, i + i / (N * s.shorts) * s.gap() * N);
  };
  // move(place in the image, place in `kept`) for `values` neighbours of a line.
  const auto each_of_lines = [&](auto values, auto move) {
    constexpr uint32_t kValues = decltype(values)::value;
    const uint32_t of_line = count / kValues;
    for (uint32_t i = threadIdx.x; i < images * s.shorts * of_line; i += kStripThreads) {
      const uint32_t line = i / of_line, c = (i - line * of_line) * kValues, of_images = line / s.shorts,
                     all_c = of_images * count + c;
      move(values, start + line * s.length + first + c,
           all_c * s.shorts + all_c / N * s.gap() * N + line - of_images * s.shorts);
    }
  };
  const auto each_line_of = [&](const T* data, auto move) {
    if (is_together(data) && s.length % N == 0)
      each_of_lines(std::integral_constant<uint32_t, N>(), move);
    else
      each_of_lines(std::integral_constant<uint32_t, 1>(), move);
  };
  if constexpr (kShortIsLast) {
    const T* const piece = x + start + first * s.shorts;
    each_of_piece(piece, [&](auto values, uint32_t at, uint32_t place) {
      Neighbours<T, decltype(values)::value> pack;
      pack.read(piece + at), pack.write(kept + place);
    });
    __syncthreads();
    each_line_of(out, [&](auto values, uint32_t at, uint32_t place) {
      constexpr uint32_t kValues = decltype(values)::value;
      Neighbours<T, kValues> pack;
#pragma unroll
      for (uint32_t k = 0; k < kValues; ++k) pack.values[k] = kept[place + k * s.shorts];
      pack.write(out + at);
    });
  } else {
    each_line_of(x, [&](auto values, uint32_t at, uint32_t place) {
      constexpr uint32_t kValues = decltype(values)::value;
      Neighbours<T, kValues> pack;
      pack.read(x + at);
#pragma unroll
      for (uint32_t k = 0; k < kValues; ++k) kept[place + k * s.shorts] = pack.values[k];
    });
    __syncthreads();
    T* const piece = out + start + first * s.shorts;
    each_of_piece(piece, [&](auto values, uint32_t at, uint32_t place) {
      Neighbours<T, decltype(values)::value> pack;
      pack.read(kept + place), pack.write(piece + at);
    });
  }
}

template <class T>
void start_transpose_strips(cudaStream_t stream, uint32_t outer, uint32_t length, uint32_t shorts, bool short_is_last,
                            const T* x, T* out) {
  Strips s{outer, length, shorts, 0, 1};
  const uint32_t most = kStripBytes / 16 / (shorts + s.gap()) * kTogether<T>;  // of the long axis
  s.strip = std::min(length, most);
  if (s.strip == length) s.images = std::min(outer, most / length);
  const uint32_t blocks = blocks_for(outer, s.images) * s.of_image();
  const auto kernel = short_is_last ? transpose_strips<T, true> : transpose_strips<T, false>;
  kernel<<<blocks, kStripThreads, 0, stream>>>(s, x, out);
}

template <class T>
void start_transpose(cudaStream_t stream, uint32_t outer, uint32_t rows, uint32_t columns, const void* x, void* out) {
  if (rows <= kMostShort || columns <= kMostShort) {
    const bool is_last = columns <= rows;
    start_transpose_strips<T>(stream, outer, is_last ? rows : columns, is_last ? columns : rows, is_last,
                              static_cast<const T*>(x), static_cast<T*>(out));
    return;
  }
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
