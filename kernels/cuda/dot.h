// The border of dot.cu: dot products on a matrix instruction.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/dot_table.h"

namespace halfmark::kernels::cuda {

struct DotArgs {
  const void* a;        // [n, k]
  const void* b;        // [n, k]
  const void* scale_a;  // [n, k / block], null where the row has none
  const void* scale_b;
  const void* c;  // [n]
  void* out;      // [n]
  uint32_t n, k;  // k is a multiple of the instruction's
};

// `row` counts in kDotRows.row; the code that the current device runs must have it.
void launch_dot(cudaStream_t stream, size_t row, const DotArgs& args);

// What the code that the current device runs was compiled for.
DotImage dot_image();

}  // namespace halfmark::kernels::cuda
