// The interface between host and device code for products and convolutions with bias and activation (fused.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/ops/operations/fused.h"

namespace halfmark::kernels::cuda {

struct FusedArgs {
  uint32_t rows, columns, bytes;  // bytes: of a row of the mask; without one a byte for each eight columns
  FusedActivation activation;
};
// sums: doubles if `wide`, else floats; backward leaves the unrounded result there. A mask is that of ReLU, and `kept` what
// GELU reads; null: none.
void launch_fused_forward(cudaStream_t, const FusedArgs&, bool wide, void* sums, Array bias, Array out, Array kept,
                          uint8_t* mask);
void launch_fused_backward(cudaStream_t, const FusedArgs&, bool wide, void* sums, Array kept, const uint8_t* mask,
                           Array out);
// sums and out have the same layout; a bias may be null.
void launch_fused_convolution(cudaStream_t, const Channels&, bool wide, bool relu, const void* sums, Array bias,
                              Array out);

}  // namespace halfmark::kernels::cuda
