// The interface of dot.cu and dot_tcgen05.cu: dot products on a matrix instruction.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/dot_table.h"

namespace halfmark::kernels::cuda {

struct DotArgs {
  const void* a;        // [n, k]
  const void* b;        // [n, k]
  const void* scale_a;  // [n, k / block], null if the row has none
  const void* scale_b;
  const void* c;            // [n]
  void* out;                // [n]
  uint32_t n, k;            // k: a multiple of the instruction's K
  int32_t* multiprocessor;  // [n], or null: %smid of the multiprocessor that computed each
};

// `row` is an index into kDotRows.row; the code that the current device runs must have it.
void launch_dot(cudaStream_t stream, size_t row, const DotArgs& args);
void launch_tcgen05(cudaStream_t stream, size_t row, const DotArgs& args);  // the rows of tcgen05, for launch_dot

// The architecture that the code on the current device was compiled for; 0 if these files have no code for the device.
// Waits for the device: to be called when it is opened.
DotImage dot_image();

}  // namespace halfmark::kernels::cuda
