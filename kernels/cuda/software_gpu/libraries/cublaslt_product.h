// The arithmetic of cublasLtMatmul() as enqueued work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/software_gpu/libraries/cublaslt_algorithms.h"

namespace halfmark::kernels::software_gpu::cublaslt {

struct Product {
  Problem problem;
  Algorithm algorithm;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  double alpha = 1, beta = 0;                                    // of host pointers, read when the function was called
  const void *alpha_pointer = nullptr, *beta_pointer = nullptr;  // on the device; null: the numbers above
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

// D = scale_D * epilogue(alpha * scale_A * scale_B * op(A) op(B) + beta * C), the formula of the documentation, for every
// matrix of the batch. The sum has the arithmetic of the algorithm; what follows is rounded to the scale type after each
// step, beta * C is added in one step, and D is rounded once. Throws Fault.
void compute(const Product& product);

// Of element (row, column) of a matrix of FP8 or FP4 with block scales: the place of its scale, in scales. Section "1D
// Block Scaling Factors Layout": tiles of 128 rows and 4 blocks of k, of 512 bytes, in row-major order; in a tile, row r
// and block s are at (r % 32) * 16 + (r / 32) * 4 + s.
size_t block_scale_place(int64_t row, int64_t block, int64_t blocks);

}  // namespace halfmark::kernels::software_gpu::cublaslt
