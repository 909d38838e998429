// Casts of many tensors to nearest even: up to kMostCasts in one launch. A block casts 2048 neighbouring elements of one.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/batches.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kShare = 8, kPerBlock = kThreads * kShare;

// Elements begin to end; neighbouring threads take neighbouring ones.
template <class Wide, class In, class Out>
__device__ __forceinline__ void cast_singly(const In& x, const Out& out, uint32_t begin, uint32_t end) {
#pragma unroll 1
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) out.template store<Wide>(i, x.template load<Wide>(i));
}

// In accesses of 16 bytes if both arrays begin at a multiple of that; what is left at the end, singly.
template <class In, class Out>
__device__ __forceinline__ void cast_vectors(const CastArrays& one, uint32_t begin, uint32_t end) {
  const Typed<In> x(Array{const_cast<void*>(one.x), one.x_dtype});
  const Typed<Out> out(Array{one.out, one.out_dtype});
  if (x.aligned && out.aligned) {
    const uint32_t i = begin + threadIdx.x * kShare, whole = begin + (end - begin) / kShare * kShare;
    if (i < whole) {
      float values[kShare];
      load_some<float, kShare>(x, i, values);
      store_some<float, kShare>(out, i, values);
    }
    begin = whole;
  }
  cast_singly<float>(x, out, begin, end);
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads) cast_tensors(const __grid_constant__ CastBatch batch) {
  const CastArrays& one = batch.tensors[tensor_of_block(batch)];
  const uint32_t begin = (blockIdx.x - one.first_block) * kPerBlock;
  const uint32_t end = one.elements - begin < kPerBlock ? one.elements : begin + kPerBlock;
  if constexpr (kVectors) {
    if (one.x_dtype == DType::f32 && one.out_dtype == DType::f16) return cast_vectors<float, __half>(one, begin, end);
    if (one.x_dtype == DType::f32) return cast_vectors<float, __nv_bfloat16>(one, begin, end);
    if (one.x_dtype == DType::f16) return cast_vectors<__half, float>(one, begin, end);
    cast_vectors<__nv_bfloat16, float>(one, begin, end);
  } else {
    const AnyTyped x(Array{const_cast<void*>(one.x), one.x_dtype}), out(Array{one.out, one.out_dtype});
    if (one.x_dtype == DType::f64 || one.out_dtype == DType::f64)
      cast_singly<double>(x, out, begin, end);
    else
      cast_singly<float>(x, out, begin, end);
  }
}

}  // namespace

uint32_t blocks_of_cast(uint32_t elements) { return blocks_for(elements, kPerBlock); }

void launch_cast_tensors(cudaStream_t stream, const CastBatch& batch, bool as_vectors) {
  const CastArrays& last = batch.tensors[batch.count - 1];
  const uint32_t blocks = last.first_block + blocks_of_cast(last.elements);
  if (as_vectors)
    cast_tensors<true><<<blocks, kThreads, 0, stream>>>(batch);
  else
    cast_tensors<false><<<blocks, kThreads, 0, stream>>>(batch);
  launched("cast_tensors");
}

}  // namespace halfmark::kernels::cuda
