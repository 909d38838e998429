// A step of delayed scaling: a block for each history. As observe_amax() and scale_after_step() of number/quantizer.h.
#include <cfloat>
#include <cstdint>

#include "kernels/cuda/block.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    delayed_scaling_step(const __grid_constant__ DelayedScaleBatch batch, bool ends_step) {
  __shared__ float shared[kMostWarps];
  const DelayedScaleArrays& one = batch.scales[blockIdx.x];
  const float last = fmaxf(one.history[0], fabsf(*one.amax));  // fmaxf drops a NaN
  const float before = ends_step ? *one.scale : 0;
  __syncthreads();  // history[0] is overwritten below
  if (!ends_step) {
    if (threadIdx.x == 0) one.history[0] = last;
    return;
  }
  if (threadIdx.x == 0 && one.used) *one.used = before;
  if (last == 0) return;
  // Entry i takes that of i + 1, a block of entries at a time; the entry behind a block is overwritten by the next one.
  float largest = last;
  for (uint32_t first = 0; first < one.length; first += kThreads) {
    const uint32_t i = first + threadIdx.x;
    const float next = i + 1 < one.length ? one.history[i + 1] : last;
    largest = fmaxf(largest, next);
    __syncthreads();
    if (i < one.length) one.history[i] = i == 0 ? 0 : next;
  }
  const float amax = one.most_recent ? last : over_block(largest, shared, Larger());
  if (threadIdx.x != 0 || !(amax > 0 && amax <= FLT_MAX)) return;
  *one.scale = fminf(one.most / amax, FLT_MAX);
}

}  // namespace

void launch_delayed_scaling_step(cudaStream_t stream, const DelayedScaleBatch& batch, uint32_t count, bool ends_step) {
  if (count == 0) return;
  delayed_scaling_step<<<count, kThreads, 0, stream>>>(batch, ends_step);
  launched("delayed_scaling_step");
}

}  // namespace halfmark::kernels::cuda
