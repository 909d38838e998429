// Quantisation by the rules of training recipes, bit by bit as number/quantizer.cpp; and the product of such matrices by plain
// loops.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/noise.cuh"
#include "kernels/cuda/quantize_eights.cuh"
#include "kernels/cuda/rounding.cuh"
#include "kernels/cuda/tile_factors.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kLanes = 32, kPiece = 1024;

// numbers[row, k] of x or its transpose, behind its end 0; transformed by hadamard_16() of number/quantizer.h.
__global__ void __launch_bounds__(kThreads) read_numbers(QuantizeForm s, AnyTyped x, float* numbers) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= s.rows * s.width) return;
  const uint32_t row = i / s.width, k = i - row * s.width;
  const auto value = [&](uint32_t at) {
    return at < s.depth ? x.load<float>(s.transpose ? at * s.rows + row : row * s.depth + at) : 0.0f;
  };
  if (!s.transform) {
    numbers[i] = value(k);
    return;
  }
  const uint32_t first = k / 16 * 16, j = k % 16;
  float sum = 0;
  for (uint32_t n = 0; n < 16; ++n) {
    const bool minus = ((0xD7E8u >> n ^ __popc(n & j)) & 1) != 0;
    sum += (minus ? -1.0f : 1.0f) * value(first + n);
  }
  __nv_bfloat16 rounded;
  narrow(sum / 4, rounded);
  numbers[i] = widen<float>(rounded);
}

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t code) {
  for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
    code = max(code, __shfl_xor_sync(0xffffffffu, code, distance));
  return code;
}

// A warp for each piece of a row in one tile.
__global__ void __launch_bounds__(kThreads)
    find_largest(QuantizeForm s, uint32_t pieces, uint32_t pieces_of_tile, const float* numbers, uint32_t* largest) {
  // There may be 2^32 threads and more.
  const uint32_t warp = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  if (warp >= pieces) return;
  const uint32_t of_row = s.tiles_along_depth * pieces_of_tile, row = warp / of_row;
  const uint32_t along = (warp - row * of_row) / pieces_of_tile, piece = warp % pieces_of_tile;
  const uint32_t first = along * s.tile_depth + piece * kPiece;
  const uint32_t end = min(min(first + kPiece, (along + 1) * s.tile_depth), s.width);
  uint32_t code = 0;
  for (uint32_t k = first + lane; k < end; k += kLanes) code = max(code, magnitude(s, numbers[row * s.width + k]));
  code = largest_of_warp(code);
  if (lane == 0 && first < end) atomicMax(&largest[row / s.tile_rows * s.tiles_along_depth + along], code);
}

constexpr uint32_t kTilesPerThread = 16;
__global__ void __launch_bounds__(kThreads) find_largest_of_all(uint32_t n, const uint32_t* largest, uint32_t* all) {
  __shared__ uint32_t shared[kMostWarps];
  uint32_t code = 0;
#pragma unroll
  for (uint32_t k = 0; k < kTilesPerThread; ++k) {
    const uint32_t i = (blockIdx.x * kTilesPerThread + k) * kThreads + threadIdx.x;
    if (i < n) code = max(code, largest[i]);
  }
  code = over_block(code, shared, Most());
  if (threadIdx.x == 0) atomicMax(all, code);
}

// A thread for each tile: its factors, and its scale as it is stored.
__global__ void __launch_bounds__(kThreads)
    find_factors(QuantizeForm s, uint32_t tiles, const uint32_t* largest, const uint32_t* all, const float* factor,
                 TileFactors* factors, QuantizeResults out) {
  const uint32_t tile = blockIdx.x * kThreads + threadIdx.x;
  if (tile >= tiles) return;
  const float amax = __int_as_float(static_cast<int>(*all));
  const TileFactors found = factor ? TileFactors{*factor, 1 / *factor, 0}
                                   : factors_of(s, __int_as_float(static_cast<int>(largest[tile])), amax);
  factors[tile] = found;
  if (out.scale_codes) out.scale_codes[tile] = static_cast<uint8_t>(found.code);
  if (out.scales) narrow(found.decode, out.scales[tile]);
  if (tile != 0) return;
  if (out.tensor_scale) narrow(s.has_tensor_scale ? amax : found.decode, *out.tensor_scale);
  narrow(amax, *out.amax);
}

// The nearest number of e2m1, of two the even one; the magnitude of x is at most 6.
__device__ uint32_t e2m1_code(float x) {
  const float size = fabsf(x), step = size < 2 ? 0.5f : size < 4 ? 1.0f : 2.0f;
  const float rounded = rintf(size / step) * step;
  const uint32_t code = rounded < 2   ? static_cast<uint32_t>(rounded * 2)
                        : rounded < 4 ? static_cast<uint32_t>(rounded) + 2
                                      : static_cast<uint32_t>(rounded) / 2 + 4;
  return code | (signbit(x) ? 8 : 0);
}

// As stochastic_e2m1() of number/quantizer.h.
__device__ uint32_t e2m1_code_at_random(float x, uint32_t noise) {
  if (isnan(x)) return 7;
  const auto step_at = [](float size) { return size < 2 ? 0.5f : size < 4 ? 1.0f : 2.0f; };
  const float size = fabsf(x), moved = static_cast<float>(noise) / 256 * step_at(size) + size, step = step_at(moved);
  return e2m1_code(copysignf(lesser(floorf(moved / step) * step, 6.0f), x));
}

__device__ __forceinline__ float clamped(float x, float most) { return x > most ? most : x < -most ? -most : x; }

__device__ double value_of(const QuantizeForm& s, uint32_t code) {
  if (s.element == DType::e4m3) return widen<double>(E4m3{static_cast<uint8_t>(code)});
  if (s.element == DType::e5m2) return widen<double>(E5m2{static_cast<uint8_t>(code)});
  const uint32_t size = code & 7;  // of e2m1
  return size < 4 ? size * 0.5 : size < 6 ? size - 2.0 : size * 2.0 - 8;
}

// Two neighbours for each thread: codes of e2m1 share a byte.
__global__ void __launch_bounds__(kThreads) find_codes(QuantizeForm s, const float* numbers, const TileFactors* factors,
                                                       QuantizeTotals* totals, QuantizeResults out) {
  __shared__ uint32_t table[256];
  if (s.stochastic) {
    fill_aes_table(table);
    __syncthreads();
  }
  const uint32_t n = s.rows * s.width, i = (blockIdx.x * kThreads + threadIdx.x) * 2;
  uint32_t pair = 0, flushed = 0, saturated = 0;
  for (uint32_t at = i; at < n && at < i + 2; ++at) {
    const uint32_t row = at / s.width, k = at - row * s.width;
    const TileFactors tile = factors[row / s.tile_rows * s.tiles_along_depth + k / s.tile_depth];
    const float x = numbers[at], scaled = s.divides ? x / tile.decode : x * tile.factor;
    uint32_t code;
    if (s.stochastic) {
      const uint64_t word = s.first_noise + at / 4;
      const uint64_t noise = noise_of(noise_words(table, s.seed, word / 4), word);
      code = e2m1_code_at_random(scaled, static_cast<uint32_t>(noise >> (8 * (at % 4))) & 0xff);
    } else if (s.element == DType::e2m1) {
      code = e2m1_code(isnan(scaled) ? s.most : clamped(scaled, s.most));
    } else if (isnan(scaled)) {
      code = nan_code(s);
    } else {
      code =
          rounded_code(static_cast<double>(clamped(scaled, s.most)), round_target(s.element), Rounding::near_even, 0);
    }
    if (s.element == DType::e2m1)
      pair |= code << (4 * (at - i));
    else
      out.codes[at] = static_cast<uint8_t>(code);
    if (isnan(x) || x == 0) continue;
    const double size = fabs(static_cast<double>(scaled));
    saturated += size > s.middle || (size == s.middle && !s.largest_is_even);
    flushed += tile.decode == 0 || value_of(s, code) == 0;
  }
  if (s.element == DType::e2m1 && i < n) out.codes[i / 2] = static_cast<uint8_t>(pair);
  if (!out.losses) return;
  for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
    flushed += __shfl_xor_sync(0xffffffffu, flushed, distance);
    saturated += __shfl_xor_sync(0xffffffffu, saturated, distance);
  }
  if (threadIdx.x % kLanes != 0) return;
  if (flushed) atomicAdd(&totals->flushed, flushed);
  if (saturated) atomicAdd(&totals->saturated, saturated);
}

__global__ void store_counts(const QuantizeTotals* totals, double* losses) {
  losses[0] = totals->flushed, losses[1] = totals->saturated;
}

// The sum of a and b, and if it is inexact the neighbour with an odd significand: rounded once more, it is as if rounded
// once (Boldo and Melquiond 2008).
__device__ double sum_to_odd(double a, double b) {
  const double sum = a + b, part = sum - a, error = (a - (sum - part)) + (b - part);
  int64_t bits = __double_as_longlong(sum);
  if (error == 0 || isnan(error) || (bits & 1)) return sum;
  bits += (error > 0) == (sum > 0) ? 1 : -1;
  return __longlong_as_double(bits);
}

__device__ double code_at(const ScaledSide& side, uint32_t i) {
  if (side.element == DType::e4m3) return widen<double>(E4m3{side.codes[i]});
  if (side.element == DType::e5m2) return widen<double>(E5m2{side.codes[i]});
  const uint32_t code = side.codes[i / 2] >> (4 * (i % 2)) & 15, size = code & 7;
  const double value = size < 4 ? size * 0.5 : size < 6 ? size - 2.0 : size * 2.0 - 8;
  return code & 8 ? -value : value;
}
__device__ double scale_at(const ScaledSide& side, uint32_t row, uint32_t k) {
  const uint32_t stored_row = side.transposed ? k : row, stored_k = side.transposed ? row : k;
  const uint32_t tile = stored_row / side.tile_rows * side.tiles_along + stored_k / side.tile_depth;
  if (side.scale == DType::f32) return static_cast<const float*>(side.scales)[tile];
  const uint8_t code = static_cast<const uint8_t*>(side.scales)[tile];
  if (side.scale == DType::e4m3) return fabs(widen<double>(E4m3{code}));
  if (code == 0xff) return widen<double>(__int_as_float(0x7fc00000));
  return __longlong_as_double(static_cast<int64_t>(code + 1023 - 127) << 52);  // e8m0
}
// A code times the scale that belongs to it.
__device__ double number_at(const ScaledSide& side, uint32_t row, uint32_t k, bool outer) {
  const double code = code_at(side, side.transposed ? k * side.rows + row : row * side.depth + k);
  return !side.scales || outer ? code : code * scale_at(side, row, k);
}

__global__ void __launch_bounds__(kThreads)
    scaled_matmul(ScaledSide a, ScaledSide b, bool outer, uint32_t block, float divided, AnyTyped out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= a.rows * b.rows) return;
  const uint32_t row = i / b.rows, column = i - row * b.rows;
  float sum = 0;
  for (uint32_t first = 0; first < a.depth; first += block) {
    float part = outer ? 0 : sum;
    const uint32_t end = min(first + block, a.depth);
    for (uint32_t k = first; k < end; ++k)
      part = static_cast<float>(sum_to_odd(number_at(a, row, k, outer) * number_at(b, column, k, outer), part));
    sum = outer ? sum + part * (static_cast<float>(scale_at(a, row, first)) *
                                static_cast<float>(scale_at(b, column, first)))
                : part;
  }
  if (a.tensor_scale || b.tensor_scale)
    sum *= (a.tensor_scale ? *a.tensor_scale : 1.0f) * (b.tensor_scale ? *b.tensor_scale : 1.0f) * divided;
  out.store<float>(i, sum);
}

// Scratch. Totals and the largest magnitudes of tiles start at zero.
struct QuantizeScratch {
  QuantizeTotals* totals;
  uint32_t* largest;     // of each tile
  TileFactors* factors;  // of each tile
  float* numbers;        // of the matrix, unless it is read in eights
  size_t zeroed;
  QuantizeScratch(void* memory, uint32_t tiles) : totals(static_cast<QuantizeTotals*>(memory)) {
    largest = reinterpret_cast<uint32_t*>(totals + 1);
    factors = reinterpret_cast<TileFactors*>(largest + tiles);
    numbers = reinterpret_cast<float*>(factors + tiles);
    zeroed = sizeof(QuantizeTotals) + size_t{tiles} * sizeof(uint32_t);
  }
  static size_t bytes(const QuantizeForm& s, uint32_t tiles, bool in_eights) {
    return sizeof(QuantizeTotals) + size_t{tiles} * (sizeof(uint32_t) + sizeof(TileFactors)) +
           (in_eights ? 0 : size_t{s.rows} * s.width * sizeof(float));
  }
};

void store_factors(cudaStream_t stream, const QuantizeForm& s, uint32_t tiles, const QuantizeScratch& scratch,
                   const float* factor, const QuantizeResults& out) {
  find_factors<<<blocks_for(tiles, kThreads), kThreads, 0, stream>>>(
      s, tiles, scratch.largest, &scratch.totals->largest, factor, scratch.factors, out);
  launched("quantize: factors");
}

template <class Access>
void quantize_in_eights(cudaStream_t stream, const QuantizeForm& s, uint32_t tiles, const QuantizeScratch& scratch,
                        Access x, const float* factor, const QuantizeResults& out) {
  const Eights eights(s, tiles);
  const uint32_t blocks = blocks_for(eights.count, kEightThreads * kEightsPerThread);
  const auto largest = [&] {
    find_largest_of_eights<<<blocks, kEightThreads, 0, stream>>>(s, eights, x, scratch.largest,
                                                                 &scratch.totals->largest);
    launched("quantize: largest");
  };
  const auto codes = [&](auto source) {
    find_codes_of_eights<Access, decltype(source)::value><<<blocks, kEightThreads, 0, stream>>>(
        s, eights, x, factor, scratch.largest, scratch.factors, scratch.totals, out);
    launched("quantize: codes");
  };
  switch (eights.factors_of(factor != nullptr)) {
    case FactorsOf::lanes:
      return codes(std::integral_constant<FactorsOf, FactorsOf::lanes>());
    case FactorsOf::given:
      return codes(std::integral_constant<FactorsOf, FactorsOf::given>());
    case FactorsOf::tile:
      largest();
      return codes(std::integral_constant<FactorsOf, FactorsOf::tile>());
    case FactorsOf::stored:
      largest();
      store_factors(stream, s, tiles, scratch, factor, out);
      return codes(std::integral_constant<FactorsOf, FactorsOf::stored>());
  }
}

}  // namespace

size_t quantize_scratch(const QuantizeForm& s, uint32_t tiles, Array x, const QuantizeResults& out) {
  return QuantizeScratch::bytes(s, tiles, Eights::fit(s, tiles, x, out.codes));
}

void launch_quantize(cudaStream_t stream, const QuantizeForm& s, uint32_t tiles, void* memory, Array x,
                     const float* factor, const QuantizeResults& out) {
  const QuantizeScratch scratch(memory, tiles);
  check(cudaMemsetAsync(memory, 0, scratch.zeroed, stream), "cudaMemsetAsync");
  if (Eights::fit(s, tiles, x, out.codes))
    return with_access({x.dtype}, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      if constexpr (is_in_eights<Access>) quantize_in_eights(stream, s, tiles, scratch, Access(x), factor, out);
    });
  const uint32_t n = s.rows * s.width;
  read_numbers<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(s, AnyTyped(x), scratch.numbers);
  launched("quantize: numbers");
  const uint32_t of_tile = blocks_for(s.tile_depth, kPiece), pieces = s.rows * s.tiles_along_depth * of_tile;
  find_largest<<<blocks_for(pieces, kThreads / kLanes), kThreads, 0, stream>>>(s, pieces, of_tile, scratch.numbers,
                                                                               scratch.largest);
  launched("quantize: largest of tiles");
  find_largest_of_all<<<blocks_for(tiles, kThreads * kTilesPerThread), kThreads, 0, stream>>>(tiles, scratch.largest,
                                                                                              &scratch.totals->largest);
  launched("quantize: largest");
  store_factors(stream, s, tiles, scratch, factor, out);
  find_codes<<<blocks_for(n, 2 * kThreads), kThreads, 0, stream>>>(s, scratch.numbers, scratch.factors, scratch.totals,
                                                                   out);
  launched("quantize: codes");
  if (!out.losses) return;
  store_counts<<<1, 1, 0, stream>>>(scratch.totals, out.losses);
  launched("quantize: losses");
}

void launch_scaled_matmul(cudaStream_t stream, const ScaledSide& a, const ScaledSide& b, bool outer, uint32_t block,
                          float divided, Array out) {
  scaled_matmul<<<blocks_for(a.rows * b.rows, kThreads), kThreads, 0, stream>>>(a, b, outer, block, divided,
                                                                                AnyTyped(out));
  launched("scaled_matmul");
}

}  // namespace halfmark::kernels::cuda
