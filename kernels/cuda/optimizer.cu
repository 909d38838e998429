// Steps of optimizers: up to kMostTensors parameters in one launch. A block updates 4096 neighbouring elements of one.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/batches.cuh"
#include "kernels/cuda/noise.cuh"
#include "kernels/cuda/rounding.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kUpdatesPerThread = 16, kUpdatesPerBlock = kThreads * kUpdatesPerThread;

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

// As of Storage::kahan; p becomes the new parameter, rounded.
template <class Wide, class Round>
__device__ __forceinline__ void compensated(const formulas::UpdateStep<Wide>& step, Wide lacked, Round round, Wide& p,
                                            Wide& rest) {
  // Without decay of the parameter, kept is the parameter; its difference would be NaN if it is infinite.
  const Wide decayed = step.kept == p ? Wide(0) : step.kept - p;
  const Wide lacking = lacked + (decayed - step.change);
  const Wide next = round(p + lacking);
  rest = lacking + (p - next);
  p = next;
}

// What belongs to one parameter.
struct Updated {
  AnyTyped parameter, gradient, first, second, compensation, low;
  __device__ __forceinline__ explicit Updated(const UpdatedArrays& a)
      : parameter(Array{a.parameter, a.parameter_dtype}),
        gradient(Array{a.gradient, a.gradient_dtype}),
        first(Array{a.first, a.first_dtype}),
        second(Array{a.second, a.second_dtype}),
        compensation(Array{a.compensation, a.compensation_dtype}),
        low(Array{a.low, a.low_dtype}) {}
  // Whether four neighbours of each are one access: what is kept has the dtype of the parameter, as in training, and
  // gradient and copy are not FP8.
  __device__ __forceinline__ bool in_fours() const {
    uintptr_t places = 0;
    bool fours = parameter.dtype != DType::f64 && is_plain(parameter.dtype);
    for (const AnyTyped* one : {&first, &second, &compensation})
      places |= reinterpret_cast<uintptr_t>(one->data), fours &= !one->present() || one->dtype == parameter.dtype;
    for (const AnyTyped* one : {&parameter, &gradient, &low})
      places |= reinterpret_cast<uintptr_t>(one->data), fours &= !one->present() || is_plain(one->dtype);
    return fours && places % 16 == 0;
  }
  __device__ static bool is_plain(DType dtype) {
    return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  }
};

template <class T>
struct RoundTo {
  __device__ float operator()(float x) const {
    if constexpr (sizeof(T) == sizeof(float)) return x;
    T y;
    narrow(x, y);
    return widen<float>(y);
  }
};

// Four neighbours, read before their dtype is asked for, so that no access waits for another.
struct FourOfAny {
  uint32_t words[4];
  __device__ __forceinline__ void read(const AnyTyped& x, uint32_t i) {
    if (x.dtype == DType::f32) {
      const uint4 all = *reinterpret_cast<const uint4*>(static_cast<const float*>(x.data) + i);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
      const uint2 all = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(x.data) + i);
      words[0] = all.x, words[1] = all.y, words[2] = words[3] = 0;
    }
  }
  __device__ __forceinline__ void widen_to(DType dtype, float* x) const {
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const auto code = static_cast<unsigned short>(words[k / 2] >> (16 * (k % 2)));
      x[k] = dtype == DType::f32   ? __uint_as_float(words[k])
             : dtype == DType::f16 ? widen<float>(__ushort_as_half(code))
                                   : widen<float>(__ushort_as_bfloat16(code));
    }
  }
};

template <class T>
__device__ __forceinline__ void store_four(void* data, uint32_t i, const float* x) {
  Neighbours<T, 4> four;
  narrow_all<4>(x, four.values);
  four.write(static_cast<T*>(data) + i);
}

// Elements begin to end, which is a multiple of four, of operands that are in_fours() with a parameter of type T.
template <class T, class Rule>
__device__ __forceinline__ void update_fours(const Updated& o, bool kahan, const Rule& rule, uint32_t begin,
                                             uint32_t end) {
#pragma unroll 1
  for (uint32_t i = begin + threadIdx.x * 4; i < end; i += kThreads * 4) {
    Neighbours<T, 4> parameter, first, second, compensation;
    FourOfAny gradient;
    const auto read = [i](const AnyTyped& x, Neighbours<T, 4>& four) {
      if (x.present())
        four.read(static_cast<const T*>(x.data) + i);
      else
        memset(four.values, 0, sizeof(four.values));
    };
    parameter.read(static_cast<const T*>(o.parameter.data) + i);
    gradient.read(o.gradient, i);
    read(o.first, first), read(o.second, second), read(o.compensation, compensation);
    float p[4], g[4], before[4], squares[4];
    gradient.widen_to(o.gradient.dtype, g);
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      p[k] = widen<float>(parameter.values[k]), before[k] = widen<float>(first.values[k]);
      squares[k] = widen<float>(second.values[k]);
    }
    formulas::UpdateStep<float> steps[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) steps[k] = rule(p[k], g[k], before[k], squares[k], formulas::KeepWide{});
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) before[k] = steps[k].first, squares[k] = steps[k].second;
    if (o.first.present()) store_four<T>(o.first.data, i, before);
    if (o.second.present()) store_four<T>(o.second.data, i, squares);
    if (kahan) {
      float rest[4];
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k)
        compensated(steps[k], widen<float>(compensation.values[k]), RoundTo<T>{}, p[k], rest[k]);
      store_four<T>(o.compensation.data, i, rest);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) p[k] = steps[k].kept - steps[k].change;
    }
    store_four<T>(o.parameter.data, i, p);
    if (!o.low.present()) continue;
      // The copy is rounded from the parameter as stored, so that the two cannot differ by double rounding.
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) p[k] = RoundTo<T>{}(p[k]);
    if (o.low.dtype == DType::f16)
      store_four<__half>(o.low.data, i, p);
    else if (o.low.dtype == DType::bf16)
      store_four<__nv_bfloat16>(o.low.data, i, p);
    else
      store_four<float>(o.low.data, i, p);
  }
}

// kFast: of Storage::nearest or kahan, rounded once; fours of neighbours where the operands are in_fours().
template <class Wide, bool kFast, class Rule>
__global__ void __launch_bounds__(kThreads, kFast ? 4 : 3)
    update(const __grid_constant__ UpdateBatch batch, Storage storage, StepRounding rounding, uint64_t seed,
           const float* found_inf, Rule rule) {
  if (found_inf && *found_inf != 0) return;  // skipped after an overflow
  __shared__ uint32_t table[kFast ? 1 : 256];
  if (!kFast && storage == Storage::stochastic) {
    fill_aes_table(table);
    __syncthreads();
  }
  const uint32_t t = tensor_of_block(batch);
  const uint32_t begin = (blockIdx.x - batch.tensors[t].first_block) * kUpdatesPerBlock;
  const uint32_t end = min(batch.tensors[t].elements, begin + kUpdatesPerBlock);
  const Updated o(batch.tensors[t]);
  const bool at_random = !kFast && storage == Storage::stochastic && o.parameter.dtype != DType::f64;
  uint32_t done = begin;
  if constexpr (kFast) {
    const bool kahan = storage == Storage::kahan;
    if (o.in_fours() && !(kahan && o.parameter.dtype == DType::f32)) {
      done = end / 4 * 4;
      if (o.parameter.dtype == DType::f32)
        update_fours<float>(o, false, rule, begin, done);
      else if (o.parameter.dtype == DType::f16)
        update_fours<__half>(o, kahan, rule, begin, done);
      else
        update_fours<__nv_bfloat16>(o, kahan, rule, begin, done);
      if (done == end) return;
    }
  }
  const RoundTarget target = round_target(o.parameter.dtype);
  NoiseWords words{};
  uint64_t known = ~uint64_t{0};  // the block of the noise that `words` holds
#pragma unroll 1
  for (uint32_t k = 0; k < kUpdatesPerThread; ++k) {
    // Neighbours share a block of the noise; otherwise the threads of a warp read neighbours.
    const uint32_t i = done + (at_random ? threadIdx.x * kUpdatesPerThread + k : threadIdx.x + k * kThreads);
    if (i >= end) return;
    const Wide p = o.parameter.load<Wide>(i), g = o.gradient.load<Wide>(i);
    const Wide before = o.first.present() ? o.first.load<Wide>(i) : Wide(0),
               squares = o.second.present() ? o.second.load<Wide>(i) : Wide(0);
    formulas::UpdateStep<Wide> step;
    if (kFast || rounding == StepRounding::once)
      step = rule(p, g, before, squares, formulas::KeepWide{});
    else
      step = rule(p, g, before, squares, RoundToDType{o.parameter.dtype});
    if (o.first.present()) o.first.store<Wide>(i, step.first);
    if (o.second.present()) o.second.store<Wide>(i, step.second);
    if (storage == Storage::kahan) {
      Wide next = p, rest;
      compensated(step, o.compensation.load<Wide>(i), RoundToDType{o.parameter.dtype}, next, rest);
      o.compensation.store<Wide>(i, rest);
      o.parameter.store<Wide>(i, next);
    } else if (at_random) {
      const uint64_t index = batch.tensors[t].first_noise + i;
      if (index / 4 != known) known = index / 4, words = noise_words(table, seed, known);
      store_code_of(o.parameter.data, o.parameter.dtype, i,
                    rounded_code(static_cast<double>(step.kept - step.change), target, Rounding::stochastic,
                                 noise_of(words, index)));
    } else {
      o.parameter.store<Wide>(i, step.kept - step.change);
    }
    if (o.low.present()) o.low.store<Wide>(i, o.parameter.load<Wide>(i));
  }
}

template <class Wide, class Rule>
void start_update(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form, Rule rule) {
  const auto& last = batch.tensors[batch.count - 1];
  const uint32_t blocks = last.first_block + blocks_of_updates(last.elements);
  const bool fast = form.storage != Storage::stochastic && form.rounding == StepRounding::once;
  auto* kernel = update<Wide, false, Rule>;
  if constexpr (sizeof(Wide) == sizeof(float))
    if (fast) kernel = update<Wide, true, Rule>;
  kernel<<<blocks, kThreads, 0, stream>>>(batch, form.storage, form.rounding, form.noise, form.found_inf, rule);
}

template <class Wide>
void start_adam(cudaStream_t stream, const UpdateBatch& batch, const StepForm& form, AdamKind kind,
                const formulas::AdamConstants<Wide>& c) {
  if (kind == AdamKind::adam) return start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::adam>{c});
  if (kind == AdamKind::adamw) return start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::adamw>{c});
  start_update<Wide>(stream, batch, form, AdamRule<Wide, AdamKind::keras>{c});
}

}  // namespace

uint32_t blocks_of_updates(uint32_t elements) { return blocks_for(elements, kUpdatesPerBlock); }

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

}  // namespace halfmark::kernels::cuda
