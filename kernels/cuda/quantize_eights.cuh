// Quantisation of a matrix that is read as it lies in memory, to FP8 and rounded to nearest: a thread has eight neighbours,
// which belong to one tile. The other forms go through numbers in fp32 (quantize.cu).
//
// The matrix is read once where a tile is within a warp or its factor is known before, and else twice: for the largest
// magnitudes and for the codes.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/tile_factors.cuh"

namespace halfmark::kernels::cuda {

constexpr uint32_t kEightThreads = 256, kEightsPerThread = 4;

template <class Access>
constexpr bool is_in_eights = false;
template <class T>
constexpr bool is_in_eights<Typed<T>> = sizeof(T) <= sizeof(float);

// Where the factors of a tile come from.
enum class FactorsOf : uint8_t {
  lanes,   // its lanes find them
  given,   // one number, of all tiles
  tile,    // the largest magnitude of the only tile
  stored,  // find_factors has stored them
};

struct Eights {
  uint32_t count, tiles_along, lanes;  // lanes: neighbours in a warp that work on one tile; 0: there is one tile
  bool tile_in_warp;
  Divisor of_row, of_tile, tile_rows;
  explicit Eights(const QuantizeForm& s, uint32_t tiles)
      : count(s.rows * s.width / 8),
        tiles_along(s.tiles_along_depth),
        lanes(tiles == 1                        ? 0
              : s.tile_depth / 8 < kLanesOfWarp ? s.tile_depth / 8
                                                : kLanesOfWarp),
        tile_in_warp(tiles != 1 && s.tile_rows == 1 && s.tile_depth / 8 <= kLanesOfWarp && !s.has_tensor_scale),
        of_row(s.width >= 8 ? s.width / 8 : 1),
        of_tile(s.tile_depth >= 8 ? s.tile_depth / 8 : 1),
        tile_rows(s.tile_rows) {}
  static bool fit(const QuantizeForm& s, uint32_t tiles, const Array& x, const uint8_t* codes) {
    const uint32_t lanes = s.tile_depth / 8;
    const bool fp8 = s.element == DType::e4m3 || s.element == DType::e5m2;
    const bool typed = x.dtype == DType::f32 || x.dtype == DType::f16 || x.dtype == DType::bf16;
    const bool in_warps = lanes != 0 && s.tile_depth % 8 == 0 && s.width % s.tile_depth == 0 &&
                          (lanes % kLanesOfWarp == 0 || kLanesOfWarp % lanes == 0);
    return fp8 && typed && !s.transpose && !s.transform && !s.stochastic && s.width == s.depth && s.width % 8 == 0 &&
           (tiles == 1 || in_warps) && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(codes) % 8 == 0;
  }
  FactorsOf factors_of(bool given) const {
    if (given) return FactorsOf::given;
    return lanes == 0 ? FactorsOf::tile : tile_in_warp ? FactorsOf::lanes : FactorsOf::stored;
  }
  __device__ __forceinline__ uint32_t tile(uint32_t i) const {
    const uint32_t row = of_row.divide(i);
    return tile_rows.quotient(row) * tiles_along + of_tile.quotient(i);
  }
};

// f(number of the eight, whether there is one, its elements) for those of this thread, which are all read first; all threads
// of a block come here together.
template <class Access, class F>
__device__ __forceinline__ void each_eight(const Eights& e, const Access& x, F f) {
  using Elements = Neighbours<typename Access::Element, 8>;
  const uint32_t first = blockIdx.x * kEightsPerThread * kEightThreads + threadIdx.x;
  Elements elements[kEightsPerThread];
  __builtin_assume(x.aligned);
#pragma unroll
  for (uint32_t k = 0; k < kEightsPerThread; ++k) {
    const uint32_t i = first + k * kEightThreads;
    elements[k] = x.template neighbours<8>((i < e.count ? i : e.count - 1) * 8);
  }
#pragma unroll
  for (uint32_t k = 0; k < kEightsPerThread; ++k)
    f(first + k * kEightThreads, first + k * kEightThreads < e.count, elements[k]);
}

template <class Elements>
__device__ __forceinline__ uint32_t largest_of(const QuantizeForm& s, const Elements& elements) {
  float largest = 0;
  bool has_nan = false;
#pragma unroll
  for (uint32_t k = 0; k < 8; ++k) {
    const float x = computed<float>(elements.values[k]);
    largest = fmaxf(largest, fabsf(x));  // drops a NaN
    has_nan |= isnan(x);
  }
  return magnitude(s, has_nan && s.nan_spreads ? nan_of<float>(false) : largest);
}
__device__ __forceinline__ uint32_t largest_of_lanes(uint32_t code, uint32_t lanes) {
  for (uint32_t distance = lanes / 2; distance > 0; distance /= 2)
    code = max(code, __shfl_xor_sync(0xffffffffu, code, distance));
  return code;
}

// Of the tiles, and of all of them.
template <class Access>
__global__ void __launch_bounds__(kEightThreads)
    find_largest_of_eights(QuantizeForm s, Eights e, Access x, uint32_t* largest, uint32_t* of_all) {
  __shared__ uint32_t shared[kMostWarps];
  uint32_t all = 0;
  each_eight(e, x, [&](uint32_t i, bool is_there, const auto& elements) {
    uint32_t code = is_there ? largest_of(s, elements) : 0;
    all = max(all, code);
    if (e.lanes == 0) return;
    code = largest_of_lanes(code, e.lanes);
    if (is_there && threadIdx.x % e.lanes == 0) atomicMax(&largest[e.tile(i)], code);
  });
  all = over_block(all, shared, Most());
  if (threadIdx.x != 0) return;
  atomicMax(of_all, all);
  if (e.lanes == 0) atomicMax(largest, all);
}

// The codes of two numbers; what is beyond the largest becomes the largest. Not for NaN (nan_code()).
__device__ __forceinline__ uint32_t fp8_codes(bool is_e4m3, float a, float b) {
  return __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, is_e4m3 ? __NV_E4M3 : __NV_E5M2);
}

struct Lost {
  uint32_t flushed = 0, saturated = 0;
};

__device__ __forceinline__ float scaled(const QuantizeForm& s, float x, const TileFactors& tile) {
  return s.divides ? x / tile.decode : x * tile.factor;
}

// One after the other: for eights with a NaN, and if losses are counted those with a zero or a saturated number.
template <class Access>
__device__ __forceinline__ uint2 codes_one_by_one(const QuantizeForm& s, const Access& x, uint32_t i,
                                                  const TileFactors& tile, float middle, Lost& lost) {
  const bool is_e4m3 = s.element == DType::e4m3;
  uint64_t codes = 0;
#pragma unroll 1
  for (uint32_t k = 0; k < 8; ++k) {
    const float number = x.template load<float>(i * 8 + k), wanted = scaled(s, number, tile), size = fabsf(wanted);
    const uint32_t code = isnan(wanted) ? nan_code(s) : fp8_codes(is_e4m3, wanted, 0) & 0xff;
    codes |= uint64_t{code} << (8 * k);
    if (isnan(number) || number == 0) continue;
    lost.saturated += size > middle || (size == middle && !s.largest_is_even);
    lost.flushed += tile.decode == 0 || (code & 0x7f) == 0;
  }
  return {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)};
}

// Whether one of four codes is zero, of either sign.
__device__ __forceinline__ bool has_zero(uint32_t codes) {
  return (((codes & 0x7f7f7f7f) + 0x7f7f7f7f) & 0x80808080) != 0x80808080;
}

template <class Access, class Elements>
__device__ __forceinline__ uint2 codes_of_eight(const QuantizeForm& s, const Access& x, uint32_t i,
                                                const Elements& elements, const TileFactors& tile, float middle,
                                                bool counts, Lost& lost) {
  const bool is_e4m3 = s.element == DType::e4m3;
  float wanted[8];
#pragma unroll
  for (uint32_t k = 0; k < 8; ++k) wanted[k] = scaled(s, computed<float>(elements.values[k]), tile);
  float largest = 0;
  bool has_nan = false;
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (uint32_t k = 0; k < 8; k += 2) {
    words[k / 4] |= fp8_codes(is_e4m3, wanted[k], wanted[k + 1]) << (16 * (k / 2 % 2));
    largest = fmaxf(largest, fmaxf(fabsf(wanted[k]), fabsf(wanted[k + 1])));
    has_nan |= isnan(wanted[k]) || isnan(wanted[k + 1]);
  }
  const bool may_lose = largest >= middle || has_zero(words[0]) || has_zero(words[1]);
  return has_nan || (counts && may_lose) ? codes_one_by_one(s, x, i, tile, middle, lost) : uint2{words[0], words[1]};
}

__device__ __forceinline__ void store_scale(const TileFactors& tile, uint32_t number, const QuantizeResults& out) {
  if (out.scale_codes) out.scale_codes[number] = static_cast<uint8_t>(tile.code);
  if (out.scales) narrow(tile.decode, out.scales[number]);
}
__device__ __forceinline__ float number_of(uint32_t magnitude) { return __int_as_float(static_cast<int>(magnitude)); }

// Codes, with the scales and sums that no other kernel stores. `totals`: zero before.
template <class Access, FactorsOf source>
__global__ void __launch_bounds__(kEightThreads)
    find_codes_of_eights(QuantizeForm s, Eights e, Access x, const float* factor, const uint32_t* largest,
                         const TileFactors* stored, QuantizeTotals* totals, QuantizeResults out) {
  constexpr bool finds_largest = source == FactorsOf::lanes || source == FactorsOf::given;
  __shared__ uint32_t shared[kMostWarps];
  __shared__ TileFactors of_block;
  const auto middle = static_cast<float>(s.middle);  // exactly
  TileFactors tile{};
  if constexpr (source == FactorsOf::given) tile = {*factor, 1 / *factor, 0};
  if constexpr (source == FactorsOf::tile) {
    if (threadIdx.x == 0) of_block = factors_of(s, number_of(*largest), number_of(*largest));
    __syncthreads();
    tile = of_block;
  }
  uint32_t all = 0;
  Lost lost;
  each_eight(e, x, [&](uint32_t i, bool is_there, const auto& elements) {
    if constexpr (finds_largest) {
      uint32_t code = is_there ? largest_of(s, elements) : 0;
      all = max(all, code);
      if constexpr (source == FactorsOf::lanes) {
        code = largest_of_lanes(code, e.lanes);
        tile = factors_of(s, number_of(code), 0);
        if (is_there && threadIdx.x % e.lanes == 0) store_scale(tile, e.of_tile.quotient(i), out);
      }
    }
    if (!is_there) return;
    if constexpr (source == FactorsOf::stored) tile = stored[e.tile(i)];
    const uint2 codes = codes_of_eight(s, x, i, elements, tile, middle, out.losses != nullptr, lost);
    reinterpret_cast<uint2*>(out.codes)[i] = codes;
  });
  const bool is_first = blockIdx.x == 0 && threadIdx.x == 0;
  if constexpr (source == FactorsOf::given || source == FactorsOf::tile) {
    if (is_first) {
      store_scale(tile, 0, out);
      if (out.tensor_scale) narrow(tile.decode, *out.tensor_scale);
    }
  }
  if constexpr (source == FactorsOf::tile)
    if (is_first) narrow(number_of(*largest), *out.amax);
  if (!finds_largest && !out.losses) return;
  if constexpr (finds_largest) all = over_block(all, shared, Most());
  if (out.losses) {
    lost.flushed = over_block(lost.flushed, shared, Plus());
    lost.saturated = over_block(lost.saturated, shared, Plus());
  }
  if (threadIdx.x != 0) return;
  if (finds_largest) atomicMax(&totals->largest, all);
  if (lost.flushed) atomicAdd(&totals->flushed, lost.flushed);
  if (lost.saturated) atomicAdd(&totals->saturated, lost.saturated);
  __threadfence();
  // The last block to come here sees the sums of all.
  if (atomicAdd(&totals->blocks, 1) != gridDim.x - 1) return;
  __threadfence();
  if (finds_largest) narrow(number_of(atomicMax(&totals->largest, 0)), *out.amax);
  if (!out.losses) return;
  out.losses[0] = atomicAdd(&totals->flushed, 0), out.losses[1] = atomicAdd(&totals->saturated, 0);
}

}  // namespace halfmark::kernels::cuda
