#pragma once
// Launches on several tensors (UpdateBatch, GradientBatch): each block works on one of them.
#include <cstdint>

namespace halfmark::kernels::cuda {

// The last tensor whose first block is not beyond this one.
template <class Batch>
__device__ __forceinline__ uint32_t tensor_of_block(const Batch& batch) {
  uint32_t low = 0, high = batch.count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (batch.tensors[middle].first_block <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace halfmark::kernels::cuda
