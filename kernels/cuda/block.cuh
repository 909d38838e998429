// Sums and maxima over a block, and the loops of a block over a row. Their order depends only on the number of threads and
// on the length of the row.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {

constexpr uint32_t kLanesOfWarp = 32, kMostRowThreads = 1024, kMostWarps = kMostRowThreads / kLanesOfWarp;

// The threads of a block that works on a row of this length.
inline uint32_t row_threads(uint32_t width) {
  return width <= 128 ? 32 : width <= 1024 ? 128 : width <= 8192 ? 256 : kMostRowThreads;
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {  // a NaN wins
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || isnan(a) ? a : b;
  }
};

template <class Wide>
__device__ __forceinline__ Wide minus_infinity() {
  return static_cast<Wide>(__int_as_float(0xff800000));
}

template <class Wide>
__device__ __forceinline__ Wide not_a_number() {
  return static_cast<Wide>(__int_as_float(0x7fc00000));
}

// The largest of a thread's values, with fewer instructions than Larger: whether one of two is NaN is one comparison.
template <class Wide>
struct Largest {
  Wide top = minus_infinity<Wide>();
  bool has_nan = false;
  __device__ __forceinline__ void add(Wide a, Wide b) {
    top = fmax(top, fmax(a, b));  // drops a NaN
    has_nan |= a != a || b != b;
  }
  __device__ __forceinline__ Wide value() const { return has_nan ? not_a_number<Wide>() : top; }
};

// f over the values of all threads, known to all of them; `shared` has kMostWarps places. Every thread of the block must
// come here, and the block has whole warps.
template <class Wide, class F>
__device__ Wide over_block(Wide x, Wide* shared, F f) {
  for (uint32_t distance = kLanesOfWarp / 2; distance > 0; distance /= 2)
    x = f(x, __shfl_xor_sync(0xffffffffu, x, distance));
  const uint32_t warps = blockDim.x / kLanesOfWarp;
  if (warps == 1) return x;
  __syncthreads();  // the places may still be read
  if (threadIdx.x % kLanesOfWarp == 0) shared[threadIdx.x / kLanesOfWarp] = x;
  __syncthreads();
  x = shared[0];
  for (uint32_t warp = 1; warp < warps; ++warp) x = f(x, shared[warp]);
  return x;
}

// f(i, x[start + i]) for this thread's share of the first `end` values of a row of `width`. In rows of whole fours it takes
// four neighbours at a time, and up to three values behind the end.
template <class Wide, class Access, class F>
__device__ __forceinline__ void each_in_row(const Access& x, uint32_t start, uint32_t width, uint32_t end, F f) {
  if (!Access::kFours || width % 4 != 0) {
    for (uint32_t i = threadIdx.x; i < end; i += blockDim.x) f(i, x.template load<Wide>(start + i));
    return;
  }
  if constexpr (Access::kFours)
    for (uint32_t i = threadIdx.x * 4; i < end; i += blockDim.x * 4) {
      Wide value[4];
      x.template load4<Wide>(start + i, value);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) f(i + k, value[k]);
    }
}

// f(i, a[start + i], b[start + i])
template <class Wide, class Access, class F>
__device__ __forceinline__ void each_in_rows(const Access& a, const Access& b, uint32_t start, uint32_t width, F f) {
  if (!Access::kFours || width % 4 != 0) {
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
      f(i, a.template load<Wide>(start + i), b.template load<Wide>(start + i));
    return;
  }
  if constexpr (Access::kFours)
    for (uint32_t i = threadIdx.x * 4; i < width; i += blockDim.x * 4) {
      Wide left[4], right[4];
      a.template load4<Wide>(start + i, left);
      b.template load4<Wide>(start + i, right);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) f(i + k, left[k], right[k]);
    }
}

// out[start + i] = f(i, x[start + i])
template <class Wide, class Access, class Out, class F>
__device__ __forceinline__ void map_row(const Access& x, const Out& out, uint32_t start, uint32_t width, F f) {
  static_assert(Access::kFours == Out::kFours);
  if (!Access::kFours || width % 4 != 0) {
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
      out.template store<Wide>(start + i, f(i, x.template load<Wide>(start + i)));
    return;
  }
  if constexpr (Access::kFours)
    for (uint32_t i = threadIdx.x * 4; i < width; i += blockDim.x * 4) {
      Wide value[4];
      x.template load4<Wide>(start + i, value);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) value[k] = f(i + k, value[k]);
      out.template store4<Wide>(start + i, value);
    }
}

// out[start + i] = f(i, a[start + i], b[start + i])
template <class Wide, class Access, class F>
__device__ __forceinline__ void map_rows(const Access& a, const Access& b, const Access& out, uint32_t start,
                                         uint32_t width, F f) {
  if (!Access::kFours || width % 4 != 0) {
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
      out.template store<Wide>(start + i, f(i, a.template load<Wide>(start + i), b.template load<Wide>(start + i)));
    return;
  }
  if constexpr (Access::kFours)
    for (uint32_t i = threadIdx.x * 4; i < width; i += blockDim.x * 4) {
      Wide left[4], right[4];
      a.template load4<Wide>(start + i, left);
      b.template load4<Wide>(start + i, right);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) left[k] = f(i + k, left[k], right[k]);
      out.template store4<Wide>(start + i, left);
    }
}

}  // namespace halfmark::kernels::cuda
