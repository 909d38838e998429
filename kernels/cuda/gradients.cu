// Unscaling of all gradients, their norm, and clipping by it: up to kMostTensors gradients in one launch. A block works on
// neighbouring elements: 4096 of one gradient where they change, up to 64 times as many of several where their squares are
// added.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/batches.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/row_packs.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kPerThread = 16, kPerBlock = kThreads * kPerThread;

// Adds the squares of this thread's share of elements `from` to `to`; `from` is a multiple of kPerBlock.
template <class T>
__device__ __forceinline__ void add_squares(const T* x, uint32_t from, uint32_t to, double& sum) {
  constexpr uint32_t N = kPack<T>;
  if (reinterpret_cast<uintptr_t>(x) % sizeof(Pack<T>) == 0) {
#pragma unroll 4
    for (uint32_t i = from / N + threadIdx.x; i < to / N; i += kThreads) {
      const Pack<T> pack = load_pack(x, i);
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) {
        const double value = plain(pack[k]);
        sum = fma(value, value, sum);
      }
    }
    from = to / N * N;
  }
  for (uint32_t i = from + threadIdx.x; i < to; i += kThreads) {
    const double value = plain(x[i]);
    sum = fma(value, value, sum);
  }
}

// parts[block] = the sum of the squares of `units` times kPerBlock elements, which may be those of several tensors.
// `all`: units of the batch.
__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ GradientBatch batch, uint32_t units, uint32_t all, double* parts) {
  __shared__ double shared[kMostWarps];
  uint32_t unit = blockIdx.x * units, t = 0, high = batch.count;
  const uint32_t last = all - unit < units ? all : unit + units;
  while (high - t > 1) {
    const uint32_t middle = (t + high) / 2;
    batch.tensors[middle].first_block <= unit ? t = middle : high = middle;
  }
  double sum = 0;
  for (; unit < last; ++t) {
    const GradientArray& one = batch.tensors[t];
    const uint32_t next = t + 1 < batch.count ? batch.tensors[t + 1].first_block : all, end = next < last ? next : last;
    const uint32_t from = (unit - one.first_block) * kPerBlock;
    const uint32_t to = end == next ? one.elements : (end - one.first_block) * kPerBlock;
    unit = end;
    if (one.dtype == DType::f32) {
      add_squares(static_cast<const float*>(one.data), from, to, sum);
    } else if (one.dtype == DType::f16) {
      add_squares(static_cast<const __half*>(one.data), from, to, sum);
    } else if (one.dtype == DType::bf16) {
      add_squares(static_cast<const __nv_bfloat16*>(one.data), from, to, sum);
    } else if (one.dtype == DType::f64) {
      add_squares(static_cast<const double*>(one.data), from, to, sum);
    } else {
      const AnyTyped x(Array{one.data, one.dtype});
      for (uint32_t i = from + threadIdx.x; i < to; i += kThreads) {
        const double value = x.load<double>(i);
        sum = fma(value, value, sum);
      }
    }
  }
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kMostRowThreads) root_of_sum(uint32_t n, const double* parts, AnyTyped norm) {
  __shared__ double shared[kMostWarps];
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += parts[i];
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) norm.store<double>(0, sqrt(sum));
}

// x <- f(x) for elements `from` to `to`; `from` is a multiple of kPerBlock.
template <class Wide, class Access, class F>
__device__ __forceinline__ void map_elements(const Access& x, uint32_t from, uint32_t to, const F& f) {
  if constexpr (Access::kFours) {
    constexpr uint32_t kShare = Access::kNeighbours;
    const uint32_t whole = from + (to - from) / kShare * kShare;
#pragma unroll 4
    for (uint32_t i = from + threadIdx.x * kShare; i < whole; i += kThreads * kShare) {
      Wide values[kShare];
      x.template load_all<Wide, kShare>(i, values);
#pragma unroll
      for (uint32_t k = 0; k < kShare; ++k) values[k] = f(values[k]);
      x.template store_all<Wide, kShare>(i, values);
    }
    from = whole;
  }
#pragma unroll 1
  for (uint32_t i = from + threadIdx.x; i < to; i += kThreads) x.template store<Wide>(i, f(x.template load<Wide>(i)));
}

// x <- f(x) for this block's elements of a gradient.
template <class Wide, class F>
__device__ __forceinline__ void map_gradient(const GradientBatch& batch, const F& f) {
  const GradientArray& one = batch.tensors[tensor_of_block(batch)];
  const Array all{one.data, one.dtype};
  const uint32_t from = (blockIdx.x - one.first_block) * kPerBlock,
                 to = one.elements - from < kPerBlock ? one.elements : from + kPerBlock;
  if constexpr (sizeof(Wide) == sizeof(double)) {
    if (all.dtype == DType::f64) return map_elements<Wide>(Typed<double>(all), from, to, f);
  } else {
    if (all.dtype == DType::f32) return map_elements<Wide>(Typed<float>(all), from, to, f);
    if (all.dtype == DType::f16) return map_elements<Wide>(Typed<__half>(all), from, to, f);
    if (all.dtype == DType::bf16) return map_elements<Wide>(Typed<__nv_bfloat16>(all), from, to, f);
  }
  map_elements<Wide>(AnyTyped(all), from, to, f);
}

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    unscale(const __grid_constant__ GradientBatch batch, float* found_inf, Wide inverse_scale) {
  bool found = false;  // stored at the end: a store in the loop might be to what the loop loads
  map_gradient<Wide>(batch, [&](Wide gradient) {
    found |= formulas::overflowed(gradient);
    return formulas::unscale(gradient, inverse_scale);
  });
  if (found) *found_inf = 1;  // every writer writes the same value
}

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    clip(const __grid_constant__ GradientBatch batch, AnyTyped norm, Wide limit) {
  const Wide factor = formulas::clip_factor(norm.load<Wide>(0), limit);
  map_gradient<Wide>(batch, [&](Wide gradient) { return gradient * factor; });
}

uint32_t blocks_of(const GradientBatch& batch) {
  const auto& last = batch.tensors[batch.count - 1];
  return last.first_block + blocks_for(last.elements, kPerBlock);
}

}  // namespace

uint32_t blocks_of_elements(uint32_t elements) { return blocks_for(elements, kPerBlock); }

uint32_t launch_sum_squares(cudaStream_t stream, const GradientBatch& batch, double* parts) {
  // Some thousand parts are enough for every GPU, and a single block adds them.
  const uint32_t all = blocks_of(batch), units = std::clamp(all / 1024, uint32_t{1}, uint32_t{64});
  const uint32_t blocks = blocks_for(all, units);
  sum_squares<<<blocks, kThreads, 0, stream>>>(batch, units, all, parts);
  launched("sums of squares");
  return blocks;
}

void launch_root_of_sum(cudaStream_t stream, uint32_t n, const double* parts, Array norm) {
  root_of_sum<<<1, row_threads(n), 0, stream>>>(n, parts, AnyTyped(norm));
  launched("gradient_norm");
}

void launch_unscale(cudaStream_t stream, const GradientBatch& batch, bool wide, float* found_inf, float inverse_scale) {
  if (wide)
    unscale<double><<<blocks_of(batch), kThreads, 0, stream>>>(batch, found_inf, inverse_scale);
  else
    unscale<float><<<blocks_of(batch), kThreads, 0, stream>>>(batch, found_inf, inverse_scale);
  launched("unscale");
}

void launch_clip(cudaStream_t stream, const GradientBatch& batch, bool wide, Array norm, double limit) {
  if (wide)
    clip<double><<<blocks_of(batch), kThreads, 0, stream>>>(batch, AnyTyped(norm), limit);
  else
    clip<float><<<blocks_of(batch), kThreads, 0, stream>>>(batch, AnyTyped(norm), static_cast<float>(limit));
  launched("clip_gradients");
}

}  // namespace halfmark::kernels::cuda
