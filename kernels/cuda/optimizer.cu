// What a training step does with all gradients and parameters: up to kMostTensors of them in one launch. A block works on
// 1024 neighbouring elements of one tensor.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/noise.cuh"
#include "kernels/cuda/rounding.cuh"
#include "kernels/cuda/row_packs.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kPerThread = 4, kPerBlock = kThreads * kPerThread;

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

template <class Wide>
__device__ __forceinline__ Wide rounded_to(DType dtype, Wide x) {
  if (dtype == DType::f64) return x;
  if (dtype == DType::f32) {
    float y;
    narrow(x, y);
    return widen<Wide>(y);
  }
  if (dtype == DType::f16) {
    __half y;
    narrow(x, y);
    return widen<Wide>(y);
  }
  if (dtype == DType::bf16) {
    __nv_bfloat16 y;
    narrow(x, y);
    return widen<Wide>(y);
  }
  if (dtype == DType::e4m3) {
    E4m3 y;
    narrow(x, y);
    return widen<Wide>(y);
  }
  if (dtype == DType::e5m2) {
    E5m2 y;
    narrow(x, y);
    return widen<Wide>(y);
  }
  __trap();
  return x;
}

struct RoundToDType {
  DType dtype;
  template <class T>
  __device__ T operator()(T x) const {
    return rounded_to(dtype, x);
  }
};

template <class Wide>
struct SgdRule {
  formulas::SgdConstants<Wide> c;
  template <class Round>
  __device__ formulas::UpdateStep<Wide> operator()(Wide p, Wide g, Wide v, Wide, Round round) const {
    return formulas::sgd_step(p, g, v, c, c.momentum != 0, c.weight_decay != 0, round);
  }
};

template <class Wide, AdamKind kind>
struct AdamRule {
  formulas::AdamConstants<Wide> c;
  template <class Round>
  __device__ formulas::UpdateStep<Wide> operator()(Wide p, Wide g, Wide m, Wide v, Round round) const {
    return formulas::adam_step<kind>(p, g, m, v, c, c.weight_decay != 0, round);
  }
};

template <class Wide, class Rule>
__global__ void __launch_bounds__(kThreads) update(const __grid_constant__ UpdateBatch batch, Storage storage,
                                                   StepRounding rounding, uint64_t seed, Rule rule) {
  __shared__ uint32_t table[256];
  if (storage == Storage::stochastic) {
    fill_aes_table(table);
    __syncthreads();
  }
  const uint32_t t = tensor_of_block(batch), n = batch.tensors[t].elements;
  const uint32_t begin = (blockIdx.x - batch.tensors[t].first_block) * kPerBlock;
  const auto any = [](void* data, DType dtype) { return AnyTyped(Array{data, dtype}); };
  const AnyTyped parameter = any(batch.tensors[t].parameter, batch.tensors[t].parameter_dtype),
                 gradient = any(batch.tensors[t].gradient, batch.tensors[t].gradient_dtype),
                 first = any(batch.tensors[t].first, batch.tensors[t].first_dtype),
                 second = any(batch.tensors[t].second, batch.tensors[t].second_dtype),
                 compensation = any(batch.tensors[t].compensation, batch.tensors[t].compensation_dtype),
                 low = any(batch.tensors[t].low, batch.tensors[t].low_dtype);
  const bool at_random = storage == Storage::stochastic && parameter.dtype != DType::f64;
  const RoundTarget target = round_target(parameter.dtype);
  NoiseWords words{};
  uint64_t known = ~uint64_t{0};  // the block of the noise that `words` holds
#pragma unroll 1
  for (uint32_t k = 0; k < kPerThread; ++k) {
    // Neighbours share a block of the noise; otherwise the threads of a warp read neighbours.
    const uint32_t i = begin + (at_random ? threadIdx.x * kPerThread + k : threadIdx.x + k * kThreads);
    if (i >= n) return;
    const Wide p = parameter.load<Wide>(i), g = gradient.load<Wide>(i);
    const Wide before = first.present() ? first.load<Wide>(i) : Wide(0),
               squares = second.present() ? second.load<Wide>(i) : Wide(0);
    const formulas::UpdateStep<Wide> step = rounding == StepRounding::once
                                                ? rule(p, g, before, squares, formulas::KeepWide{})
                                                : rule(p, g, before, squares, RoundToDType{parameter.dtype});
    if (first.present()) first.store<Wide>(i, step.first);
    if (second.present()) second.store<Wide>(i, step.second);
    if (storage == Storage::kahan) {
      // Without decay of the parameter, kept is the parameter; its difference would be NaN if it is infinite.
      const Wide decayed = step.kept == p ? Wide(0) : step.kept - p;
      const Wide lacking = compensation.load<Wide>(i) + (decayed - step.change);
      const Wide next = rounded_to(parameter.dtype, p + lacking);
      compensation.store<Wide>(i, lacking + (p - next));
      parameter.store<Wide>(i, next);
    } else if (at_random) {
      const uint64_t index = batch.tensors[t].first_noise + i;
      if (index / 4 != known) known = index / 4, words = noise_words(table, seed, known);
      store_code_of(parameter.data, parameter.dtype, i,
                    rounded_code(static_cast<double>(step.kept - step.change), target, Rounding::stochastic,
                                 noise_of(words, index)));
    } else {
      parameter.store<Wide>(i, step.kept - step.change);
    }
    // The copy is rounded from the parameter as stored, so that the two cannot differ by double rounding.
    if (low.present()) low.store<Wide>(i, parameter.load<Wide>(i));
  }
}

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

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    clip(const __grid_constant__ GradientBatch batch, AnyTyped norm, Wide limit) {
  const uint32_t t = tensor_of_block(batch), n = batch.tensors[t].elements;
  const uint32_t first = (blockIdx.x - batch.tensors[t].first_block) * kPerBlock + threadIdx.x;
  const AnyTyped all(Array{batch.tensors[t].data, batch.tensors[t].dtype});
  const Wide factor = formulas::clip_factor(norm.load<Wide>(0), limit);
#pragma unroll
  for (uint32_t k = 0; k < kPerThread; ++k)
    if (first + k * kThreads < n) all.store<Wide>(first + k * kThreads, all.load<Wide>(first + k * kThreads) * factor);
}

template <class Batch>
uint32_t blocks_of(const Batch& batch) {
  const auto& last = batch.tensors[batch.count - 1];
  return last.first_block + blocks_for(last.elements, kPerBlock);
}

template <class Wide, class Rule>
void start_update(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form, Rule rule) {
  update<Wide><<<blocks_of(batch), kThreads, 0, stream>>>(batch, form.storage, form.rounding, form.noise, rule);
}

template <class Wide>
void start_adam(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form, AdamKind kind,
                const formulas::AdamConstants<Wide>& c) {
  if (kind == AdamKind::adam) return start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::adam>{c});
  if (kind == AdamKind::adamw) return start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::adamw>{c});
  start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::keras>{c});
}

}  // namespace

uint32_t blocks_of_elements(uint32_t elements) { return blocks_for(elements, kPerBlock); }

void launch_sgd_step(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form,
                     const formulas::SgdConstants<float>* narrow, const formulas::SgdConstants<double>* wide) {
  if (wide)
    start_update<double>(stream, batch, form, SgdRule<double>{*wide});
  else
    start_update<float>(stream, batch, form, SgdRule<float>{*narrow});
  launched("sgd_step");
}

void launch_adam_step(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form, AdamKind kind,
                      const formulas::AdamConstants<float>* narrow, const formulas::AdamConstants<double>* wide) {
  if (wide)
    start_adam(stream, batch, form, kind, *wide);
  else
    start_adam(stream, batch, form, kind, *narrow);
  launched("adam_step");
}

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

void launch_clip(cudaStream_t stream, const GradientBatch& batch, bool wide, Array norm, double limit) {
  if (wide)
    clip<double><<<blocks_of(batch), kThreads, 0, stream>>>(batch, AnyTyped(norm), limit);
  else
    clip<float><<<blocks_of(batch), kThreads, 0, stream>>>(batch, AnyTyped(norm), static_cast<float>(limit));
  launched("clip_gradients");
}

}  // namespace halfmark::kernels::cuda
