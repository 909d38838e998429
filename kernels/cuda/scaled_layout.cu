#include "kernels/cuda/scaled_layout.h"

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kRows = 128, kBlocks = 4, kTile = kRows * kBlocks;

uint32_t divided(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

__device__ uint32_t place_of(const ScaleTiles& s, uint32_t row, uint32_t block) {
  const uint32_t k = block * s.block;
  const uint32_t stored_row = s.transposed ? k : row, stored_column = s.transposed ? row : k;
  return stored_row / s.tile_rows * s.columns + stored_column / s.tile_depth;
}

// One thread for each place of the result.
__global__ void tiled_scales(ScaleTiles s, uint32_t tiles_of_blocks, uint32_t count, uint8_t* to) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t tile = i / kTile, place = i % kTile;
  // In a tile: 32 lines of 16, each with 4 blocks of rows r, r + 32, r + 64 and r + 96.
  const uint32_t row = tile / tiles_of_blocks * kRows + place % 16 / kBlocks * 32 + place / 16;
  const uint32_t block = tile % tiles_of_blocks * kBlocks + place % kBlocks;
  const bool inside = row < s.rows && block < s.blocks;
  to[i] = inside ? static_cast<const uint8_t*>(s.scales)[place_of(s, row, block)] : 0;
}

__global__ void vector_scales(ScaleTiles s, uint32_t count, float* to) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) to[i] = static_cast<const float*>(s.scales)[place_of(s, i % s.rows, i / s.rows)];
}

__global__ void square_scales(ScaleTiles s, uint32_t stride, uint32_t count, float* to) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t block = i % stride;
  to[i] = block < s.blocks ? static_cast<const float*>(s.scales)[place_of(s, i / stride * kRows, block)] : 0.0F;
}

__global__ void scale_factor(const float* a, const float* b, float by, float* to) {
  to[0] = (a ? *a : 1.0F) * (b ? *b : 1.0F) * by;
  to[1] = 0;
}

}  // namespace

size_t bytes_of_tiled(uint32_t rows, uint32_t blocks) {
  return size_t{kTile} * divided(rows, kRows) * divided(blocks, kBlocks);
}
size_t bytes_of_vectors(uint32_t rows, uint32_t blocks) { return sizeof(float) * size_t{rows} * blocks; }
size_t bytes_of_squares(uint32_t rows, uint32_t blocks) {
  return sizeof(float) * divided(rows, kRows) * size_t{divided(blocks, kBlocks) * kBlocks};
}

void launch_tiled_scales(cudaStream_t stream, const ScaleTiles& from, void* to) {
  const auto count = static_cast<uint32_t>(bytes_of_tiled(from.rows, from.blocks));
  tiled_scales<<<divided(count, kThreads), kThreads, 0, stream>>>(from, divided(from.blocks, kBlocks), count,
                                                                  static_cast<uint8_t*>(to));
  launched("tiled_scales");
}

void launch_vector_scales(cudaStream_t stream, const ScaleTiles& from, float* to) {
  const uint32_t count = from.rows * from.blocks;
  vector_scales<<<divided(count, kThreads), kThreads, 0, stream>>>(from, count, to);
  launched("vector_scales");
}

void launch_square_scales(cudaStream_t stream, const ScaleTiles& from, float* to) {
  const auto count = static_cast<uint32_t>(bytes_of_squares(from.rows, from.blocks) / sizeof(float));
  square_scales<<<divided(count, kThreads), kThreads, 0, stream>>>(from, divided(from.blocks, kBlocks) * kBlocks, count,
                                                                   to);
  launched("square_scales");
}

void launch_scale_factor(cudaStream_t stream, const float* a, const float* b, float by, float* to) {
  scale_factor<<<1, 1, 0, stream>>>(a, b, by, to);
  launched("scale_factor");
}

}  // namespace halfmark::kernels::cuda
