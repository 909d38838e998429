// What the loops of attention and the kernels between its products have in common.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"

namespace halfmark::kernels::cuda {

// What a mask adds to the score of a row of scores (a head of a sample), query and key.
template <class Wide>
__device__ __forceinline__ Wide added(const ScoreMask& mask, uint32_t head, uint32_t query, uint32_t key) {
  if (!mask.data) return 0;
  const uint32_t i = (head / mask.heads * mask.queries + (mask.queries == 1 ? 0 : query)) * mask.keys + key;
  if (mask.is_bytes) return static_cast<const uint8_t*>(mask.data)[i] ? Wide(0) : minus_infinity<Wide>();
  return AnyTyped(Array{mask.data, mask.dtype}).load<Wide>(i);
}

constexpr uint32_t kAlongThreads = 128, kAlongLanes = 8;

// along[row] = sum of dout out, by eight lanes a row.
template <class Wide, class Access>
__global__ void __launch_bounds__(kAlongThreads)
    along_rows(uint32_t rows, uint32_t d, Access out, Access dout, Wide* along) {
  const uint32_t row = (blockIdx.x * kAlongThreads + threadIdx.x) / kAlongLanes, lane = threadIdx.x % kAlongLanes;
  Wide sum = 0;
  if (row < rows)
    for (uint32_t e = lane; e < d; e += kAlongLanes)
      sum = fma(dout.template load<Wide>(row * d + e), out.template load<Wide>(row * d + e), sum);
  for (uint32_t distance = kAlongLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (row < rows && lane == 0) along[row] = sum;
}
template <class Wide, class Access>
void start_along_rows(cudaStream_t stream, uint32_t rows, uint32_t d, const Access& out, const Access& dout,
                      Wide* along) {
  along_rows<<<blocks_for(rows, kAlongThreads / kAlongLanes), kAlongThreads, 0, stream>>>(rows, d, out, dout, along);
}

}  // namespace halfmark::kernels::cuda
