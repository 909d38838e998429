// Rows whose values stay in registers: they are read and written once, 16 bytes at a time. A row is the work of some
// lanes of a warp or, if it is long, of a block. What does not fit (other widths, slices that start anywhere, FP8,
// mixtures of dtypes) is left to the loops of block.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"

namespace halfmark::kernels::cuda {

template <class T>
constexpr uint32_t kPack = 16 / sizeof(T);  // values of one access
// Words, of which values are taken when they are used: split into halves where it is loaded, a pack would be waited for
// there.
template <class T, uint32_t N = kPack<T>>
struct Pack {
  using Words = typename UnitOfBytes<N * sizeof(T)>::Type;
  Words words;
  __device__ __forceinline__ uint32_t word(uint32_t k) const {
    if constexpr (sizeof(Words) == 8)
      return k == 0 ? words.x : words.y;
    else
      return k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
  }
  __device__ __forceinline__ T operator[](uint32_t k) const {
    if constexpr (sizeof(T) == 8) {
      return __hiloint2double(static_cast<int>(word(2 * k + 1)), static_cast<int>(word(2 * k)));
    } else if constexpr (sizeof(T) == 4) {
      return __uint_as_float(word(k));
    } else {
      const auto half = static_cast<unsigned short>(k % 2 == 0 ? word(k / 2) & 0xffff : word(k / 2) >> 16);
      if constexpr (std::is_same_v<T, __half>) return __ushort_as_half(half);
      if constexpr (!std::is_same_v<T, __half>) return __ushort_as_bfloat16(half);
    }
  }
};

template <class Access>
struct ElementOf {
  using Type = void;  // of no type known at compile time
};
template <class T>
struct ElementOf<Typed<T>> {
  using Type = T;
};

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, double>   ? DType::f64
                           : std::is_same_v<T, float>  ? DType::f32
                           : std::is_same_v<T, __half> ? DType::f16
                                                       : DType::bf16;

// Exact, but a NaN may lose its sign: for arithmetic, which drops it anyway.
__device__ __forceinline__ double plain(double x) { return x; }
__device__ __forceinline__ float plain(float x) { return x; }
__device__ __forceinline__ float plain(__half x) { return __half2float(x); }
__device__ __forceinline__ float plain(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(__bfloat16_as_ushort(x)) << 16);
}

template <uint32_t N, class T>
__device__ __forceinline__ Pack<T, N> load_pack_of(const T* data, uint32_t number) {
  return reinterpret_cast<const Pack<T, N>*>(data)[number];
}
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* data, uint32_t number) {
  return load_pack_of<kPack<T>>(data, number);
}
template <class T, uint32_t N, class Wide>
__device__ __forceinline__ void widen_pack(const Pack<T, N>& pack, Wide* x) {
#pragma unroll
  for (uint32_t k = 0; k < N; ++k) x[k] = plain(pack[k]);
}

template <uint32_t N, class T, class Wide>
__device__ __forceinline__ void store_pack_of(T* data, uint32_t number, const Wide* x) {
  Neighbours<T, N> pack;
  narrow_all<N>(x, pack.values);
  pack.write(data + number * N);
}
template <class T, class Wide>
__device__ __forceinline__ void store_pack(T* data, uint32_t number, const Wide* x) {
  store_pack_of<kPack<T>>(data, number, x);
}

// N neighbours from element `first` on, a multiple of N, of an operand of type T or Wide.
template <class T, uint32_t N, class Wide>
__device__ __forceinline__ void load_values(const AnyTyped& from, uint32_t first, Wide* x) {
  if (from.dtype == kDTypeOf<Wide>) {
#pragma unroll
    for (uint32_t q = 0; q < N / kPack<Wide>; ++q)
      widen_pack(load_pack(static_cast<const Wide*>(from.data), first / kPack<Wide> + q), x + q * kPack<Wide>);
  } else if constexpr (!std::is_same_v<T, Wide>) {
#pragma unroll
    for (uint32_t q = 0; q < N / kPack<T>; ++q)
      widen_pack(load_pack(static_cast<const T*>(from.data), first / kPack<T> + q), x + q * kPack<T>);
  }
}

inline bool starts_pack(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }
// Whether load_values() reads it; an absent operand is not read.
template <class T, class Wide>
bool has_packs(const Array& array) {
  return !array.data || (starts_pack(array.data) && (array.dtype == kDTypeOf<T> || array.dtype == kDTypeOf<Wide>));
}

// start(half()) if one dtype is f32 and the other one of 16 bits, which `half` has; whether it has started a kernel. Other
// mixtures are read and written one element at a time.
template <class Start>
bool start_mixed(DType wide, DType narrow, Start start) {
  if (wide != DType::f32) return false;
  if (narrow == DType::f16) return start(__half());
  return narrow == DType::bf16 && start(__nv_bfloat16());
}

// The threads of a row: `lanes` of a warp, a power of two, or a whole block. All threads of the block must come to
// over().
template <bool kOfWarp>
struct RowThreads {
  uint32_t row, lane, lanes;  // row: the first of kRows, which are neighbours
  template <uint32_t kRows = 1>
  __device__ explicit RowThreads(uint32_t lanes_of_row, std::integral_constant<uint32_t, kRows> = {}) {
    if constexpr (kOfWarp) {
      const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
      lanes = lanes_of_row, row = thread / lanes * kRows, lane = threadIdx.x % lanes;
    } else {
      lanes = blockDim.x, row = blockIdx.x * kRows, lane = threadIdx.x;
    }
  }
  template <class Wide, class F>
  __device__ __forceinline__ Wide over(Wide x, Wide* shared, F f) const {
    if constexpr (kOfWarp) {
      for (uint32_t distance = lanes / 2; distance > 0; distance /= 2)
        x = f(x, __shfl_xor_sync(0xffffffffu, x, distance));
      return x;
    } else {
      return over_block(x, shared, f);
    }
  }
};

constexpr uint32_t kMostPackThreads = 512, kWarpRowThreads = 128, kMostPacksOfThread = 4;

struct RowShape {
  bool fits, of_warp;
  uint32_t packs_of_thread, lanes, threads, blocks;
};
inline uint32_t whole_warps(uint32_t threads) { return blocks_for(threads, kLanesOfWarp) * kLanesOfWarp; }
inline uint32_t power_of_two_from(uint32_t count) {
  uint32_t power = 1;
  while (power < count) power *= 2;
  return power;
}
// `pack`: values of one access. Depends on the shape alone.
inline RowShape row_shape(uint32_t rows, uint32_t width, uint32_t pack) {
  const uint32_t packs = width / pack, most = kMostPacksOfThread;
  if (width % pack != 0 || packs > most * kMostPackThreads) return {};
  if (packs > most * kLanesOfWarp) return {true, false, most, 0, whole_warps(blocks_for(packs, most)), rows};
  const uint32_t of_thread = packs <= kLanesOfWarp ? 1 : packs <= 2 * kLanesOfWarp ? 2 : most;
  const uint32_t lanes = power_of_two_from(blocks_for(packs, of_thread));
  return {true, true, of_thread, lanes, kWarpRowThreads, blocks_for(rows, kWarpRowThreads / lanes)};
}

// f(packs of a thread, of a warp) with both as constants.
template <class F>
void with_row_shape(const RowShape& shape, F&& f) {
  if (!shape.of_warp) return f(std::integral_constant<uint32_t, kMostPacksOfThread>{}, std::false_type{});
  if (shape.packs_of_thread == 1) return f(std::integral_constant<uint32_t, 1>{}, std::true_type{});
  if (shape.packs_of_thread == 2) return f(std::integral_constant<uint32_t, 2>{}, std::true_type{});
  f(std::integral_constant<uint32_t, kMostPacksOfThread>{}, std::true_type{});
}

// f(index in x[...] of the first value of a pack, number of the pack in the row) for this thread's packs.
template <uint32_t kPacks, uint32_t kValues, bool kOfWarp, class F>
__device__ __forceinline__ void each_pack(const RowThreads<kOfWarp>& me, uint32_t packs, F f) {
#pragma unroll
  for (uint32_t p = 0; p < kPacks; ++p) {
    const uint32_t number = me.lane + p * me.lanes;
    if (number < packs) f(p * kValues, number);
  }
}

// A thread's share of a row, widened. All of it is asked for before the first value is used.
template <uint32_t kPacks, bool kOfWarp, class T, class Wide>
__device__ __forceinline__ void load_row(const RowThreads<kOfWarp>& me, const T* data, uint32_t first_pack,
                                         uint32_t packs, Wide* x) {
  Pack<T> raw[kPacks];
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) { raw[p] = load_pack(data, first_pack + number); });
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) { widen_pack(raw[p], x + p * kPack<T>); });
}

}  // namespace halfmark::kernels::cuda
