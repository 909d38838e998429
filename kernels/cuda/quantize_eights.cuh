// Quantisation of a matrix that is read as it lies in memory, to FP8 and rounded to nearest: a thread has eight neighbours,
// which belong to one tile. The other forms go through numbers in fp32 (quantize.cu).
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/division.cuh"

namespace halfmark::kernels::cuda {

constexpr uint32_t kEightThreads = 256, kEightsPerThread = 4;

template <class Access>
constexpr bool is_in_eights = false;
template <class T>
constexpr bool is_in_eights<Typed<T>> = sizeof(T) <= sizeof(float);

struct Most {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

struct Eights {
  uint32_t count, tiles_along, lanes;  // lanes: neighbours in a warp that work on one tile; 0: there is one tile
  Divisor of_row, of_tile, tile_rows;
  explicit Eights(const QuantizeForm& s, uint32_t tiles)
      : count(s.rows * s.width / 8),
        tiles_along(s.tiles_along_depth),
        lanes(tiles == 1                        ? 0
              : s.tile_depth / 8 < kLanesOfWarp ? s.tile_depth / 8
                                                : kLanesOfWarp),
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
  __device__ __forceinline__ uint32_t tile(uint32_t i) const {
    const uint32_t row = of_row.divide(i);
    return tile_rows.quotient(row) * tiles_along + of_tile.quotient(i);
  }
};

// f(number of the eight, whether there is one) for those of this thread; all threads of a block come here together.
template <class F>
__device__ __forceinline__ void each_eight(const Eights& e, F f) {
#pragma unroll
  for (uint32_t k = 0; k < kEightsPerThread; ++k) {
    const uint32_t i = (blockIdx.x * kEightsPerThread + k) * kEightThreads + threadIdx.x;
    f(i, i < e.count);
  }
}

// `magnitude`: the code that is to be the largest, of a number.
template <class Access, class Magnitude>
__global__ void __launch_bounds__(kEightThreads)
    find_largest_of_eights(Eights e, Access x, Magnitude magnitude, uint32_t* largest) {
  __shared__ uint32_t shared[kMostWarps];
  uint32_t all = 0;
  each_eight(e, [&](uint32_t i, bool is_there) {
    uint32_t code = 0;
    if (is_there) {
      float numbers[8];
      __builtin_assume(x.aligned);
      x.template load_all<float, 8>(i * 8, numbers);
#pragma unroll
      for (uint32_t k = 0; k < 8; ++k) code = max(code, magnitude(numbers[k]));
    }
    all = max(all, code);
    if (e.lanes == 0) return;
    for (uint32_t distance = e.lanes / 2; distance > 0; distance /= 2)
      code = max(code, __shfl_xor_sync(0xffffffffu, code, distance));
    if (is_there && threadIdx.x % e.lanes == 0) atomicMax(&largest[e.tile(i)], code);
  });
  if (e.lanes != 0) return;
  all = over_block(all, shared, Most());
  if (threadIdx.x == 0) atomicMax(largest, all);
}

// The codes of two numbers that are not beyond the largest. A NaN keeps its sign.
__device__ __forceinline__ uint32_t fp8_codes(bool is_e4m3, float a, float b) {
  uint32_t codes = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, is_e4m3 ? __NV_E4M3 : __NV_E5M2);
  const uint32_t nan = is_e4m3 ? 0x7f : 0x7e;
  if (isnan(a)) codes = (codes & 0xff00) | nan | (signbit(a) ? 0x80 : 0);
  if (isnan(b)) codes = (codes & 0x00ff) | nan << 8 | (signbit(b) ? 0x8000 : 0);
  return codes;
}

template <class Access>
__global__ void __launch_bounds__(kEightThreads)
    find_codes_of_eights(QuantizeForm s, Eights e, Access x, const TileFactors* factors, QuantizeResults out) {
  __shared__ uint32_t shared[kMostWarps];
  const bool is_e4m3 = s.element == DType::e4m3;
  const float middle = static_cast<float>(s.middle);  // exactly
  uint32_t flushed = 0, saturated = 0;
  each_eight(e, [&](uint32_t i, bool is_there) {
    if (!is_there) return;
    float numbers[8];
    __builtin_assume(x.aligned);
    x.template load_all<float, 8>(i * 8, numbers);
    const TileFactors tile = factors[e.lanes == 0 ? 0 : e.tile(i)];
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (uint32_t k = 0; k < 8; k += 2) {
      float scaled[2], inside[2];
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        scaled[j] = s.divides ? numbers[k + j] / tile.decode : numbers[k + j] * tile.factor;
        inside[j] = scaled[j] > s.most ? s.most : scaled[j] < -s.most ? -s.most : scaled[j];
      }
      const uint32_t codes = fp8_codes(is_e4m3, inside[0], inside[1]);
      words[k / 4] |= codes << (16 * (k / 2 % 2));
      if (!out.losses) continue;
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const float number = numbers[k + j], size = fabsf(scaled[j]);
        if (isnan(number) || number == 0) continue;
        saturated += size > middle || (size == middle && !s.largest_is_even);
        flushed += tile.decode == 0 || (codes >> (8 * j) & 0x7f) == 0;
      }
    }
    reinterpret_cast<uint2*>(out.codes)[i] = {words[0], words[1]};
  });
  if (!out.losses) return;
  flushed = over_block(flushed, shared, Plus());
  saturated = over_block(saturated, shared, Plus());
  if (threadIdx.x != 0) return;
  if (flushed) atomicAdd(&out.counts[0], flushed);
  if (saturated) atomicAdd(&out.counts[1], saturated);
}

}  // namespace halfmark::kernels::cuda
