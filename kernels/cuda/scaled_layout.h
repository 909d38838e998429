// Scales in the layouts that cublasLt takes (cuBLAS documentation, "Narrow Precision Data Types Usage"). scaled_layout.cu
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace halfmark::kernels::cuda {

// The scales of a Scaled (tensor/scaled.h): of element (row, k), with stored place (row, k) or (k, row) if transposed, at
// stored row / tile_rows * columns + stored column / tile_depth.
struct ScaleTiles {
  const void* scales;
  uint32_t columns, tile_rows, tile_depth;
  bool transposed;
  uint32_t rows, blocks, block;  // of the matrix: rows, and blocks of `block` elements along k
};

size_t bytes_of_tiled(uint32_t rows, uint32_t blocks);
size_t bytes_of_vectors(uint32_t rows, uint32_t blocks);
size_t bytes_of_squares(uint32_t rows, uint32_t blocks);

// 8-bit scales in tiles of 128 rows by 4 blocks, whole tiles, zero beyond the matrix: VEC16_UE4M3 and VEC32_UE8M0.
void launch_tiled_scales(cudaStream_t, const ScaleTiles& from, void* to);
// f32, the rows of one block together: VEC128_32F, and OUTER_VEC_32F with one block.
void launch_vector_scales(cudaStream_t, const ScaleTiles& from, float* to);
// f32, for 128 rows the blocks together, in multiples of 4, zero beyond the matrix: BLK128x128_32F.
void launch_square_scales(cudaStream_t, const ScaleTiles& from, float* to);
// to[0] = a * b * by in fp32, to[1] = 0. A null pointer stands for 1.
void launch_scale_factor(cudaStream_t, const float* a, const float* b, float by, float* to);

}  // namespace halfmark::kernels::cuda
