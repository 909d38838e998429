// Norms of rows whose values stay in registers. Backward, a block works on many rows, of which a thread has the same
// columns, so that it adds up their gradients of scale and shift on the way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/row_packs.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {

// Whether a column of the row is an entry of the parameters.
__host__ __device__ inline bool has_entry_columns(const RowNormForm& s) {
  return s.repeat == 1 && s.entries == s.width;
}

__device__ __forceinline__ uint32_t entry_of_value(const RowNormForm& s, uint32_t row, uint32_t i) {
  return (row * s.width + i) / s.repeat % s.entries;
}
template <uint32_t N, class Wide>
__device__ __forceinline__ void fill(Wide* x, Wide value) {
#pragma unroll
  for (uint32_t k = 0; k < N; ++k) x[k] = value;
}
// The parameter of each value of the pack that begins with value i of the row: one entry after another, or one for all.
template <class T, uint32_t N, class Wide>
__device__ __forceinline__ void load_parameters(const RowNormForm& s, const AnyTyped& from, uint32_t row, uint32_t i,
                                                Wide absent, Wide* x) {
  if (from.present() && has_entry_columns(s)) return load_values<T, N>(from, i, x);
  fill<N>(x, from.present() ? from.load<Wide>(entry_of_value(s, row, i)) : absent);
}

// The places in shared memory for OverRow: two turns; in each, the sums of the warps, the second sums in other banks.
constexpr uint32_t kHalfWarp = kLanesOfWarp / 2;
constexpr uint32_t kSecondSums = kMostWarps + kHalfWarp, kRowSumsOfTurn = 2 * kSecondSums;
constexpr uint32_t kRowSumPlaces = 2 * kRowSumsOfTurn;

// Two sums over the threads of a row, known to all of them. Where a row has whole warps, half of each warp adds up the first
// sum and half the second. The turns alternate, so that one barrier a row is enough.
template <class Wide>
struct OverRow {
  uint32_t lanes, turn = 0;
  __device__ explicit OverRow(uint32_t lanes_of_row) : lanes(lanes_of_row) {}
  __device__ __forceinline__ static Wide over_half_warp(Wide x) {
#pragma unroll
    for (uint32_t distance = kHalfWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
  }
  __device__ __forceinline__ static void share(Wide x, Pair<Wide>& sums) {
    sums.first = __shfl_sync(0xffffffffu, x, 0), sums.second = __shfl_sync(0xffffffffu, x, kHalfWarp);
  }
  __device__ __forceinline__ void operator()(Pair<Wide>& x, Wide (&shared)[kRowSumPlaces]) {
    if (lanes < kLanesOfWarp) {
      for (uint32_t distance = lanes / 2; distance > 0; distance /= 2) {
        x.first += __shfl_xor_sync(0xffffffffu, x.first, distance);
        x.second += __shfl_xor_sync(0xffffffffu, x.second, distance);
      }
      return;
    }
    const uint32_t lane = threadIdx.x % kHalfWarp, warps = lanes / kLanesOfWarp;
    const bool adds_second = threadIdx.x % kLanesOfWarp >= kHalfWarp;
    Wide sum = adds_second ? x.second : x.first;
    sum = over_half_warp(sum + __shfl_xor_sync(0xffffffffu, adds_second ? x.first : x.second, kHalfWarp));
    if (warps > 1) {
      Wide* places = shared + turn * kRowSumsOfTurn + (adds_second ? kSecondSums : 0);
      if (lane == 0) places[threadIdx.x / kLanesOfWarp] = sum;
      __syncthreads();
      sum = lane < warps ? places[lane] : Wide(0);
      if (lane + kHalfWarp < warps) sum += places[lane + kHalfWarp];
      sum = over_half_warp(sum);
      turn ^= 1;
    }
    share(sum, x);
  }
};

// Parameters of which each column has its own, of the type of the arithmetic; null: absent.
template <class Wide>
struct ColumnParameters {
  const Wide *scale, *shift;
  template <class T, uint32_t N>
  __device__ __forceinline__ void load(uint32_t, uint32_t number, Wide* factor, Wide* offset) const {
    load_of<N>(scale, number, Wide(1), factor);
    load_of<N>(shift, number, Wide(0), offset);
  }

 private:
  template <uint32_t N>
  __device__ __forceinline__ static void load_of(const Wide* from, uint32_t number, Wide absent, Wide* x) {
    if (!from) return fill<N>(x, absent);
#pragma unroll
    for (uint32_t q = 0; q < N / kPack<Wide>; ++q)
      widen_pack(load_pack(from, number * (N / kPack<Wide>)+q), x + q * kPack<Wide>);
  }
};

// Any others that parameters_fit() takes.
template <class Wide>
struct SharedParameters {
  RowNormForm s;
  AnyTyped scale, shift;
  template <class T, uint32_t N>
  __device__ __forceinline__ void load(uint32_t row, uint32_t number, Wide* factor, Wide* offset) const {
    load_parameters<T, N>(s, scale, row, number * N, Wide(1), factor);
    load_parameters<T, N>(s, shift, row, number * N, Wide(0), offset);
  }
};

// What is normalised: rows in memory.
template <class T>
struct StoredRows {
  using Type = T;
  const T* x;
  __device__ __forceinline__ Pack<T> load(uint32_t number) const { return load_pack(x, number); }
};
// The sum of two, which is rounded and stored on the way.
template <class Wide, class T, class A, class B>
struct SummedRows {
  using Type = T;
  const A* a;
  const B* b;
  T* sum;
  __device__ __forceinline__ Pack<T> load(uint32_t number) const {
    constexpr uint32_t N = kPack<T>;
    const Pack<A, N> left = load_pack_of<N>(a, number);
    const Pack<B, N> right = load_pack_of<N>(b, number);
    Wide x[N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) x[k] = static_cast<Wide>(plain(left[k])) + static_cast<Wide>(plain(right[k]));
    Neighbours<T, N> rounded;
    narrow_all<N>(x, rounded.values);
    rounded.write(sum + number * N);
    Pack<T> pack;
    memcpy(&pack.words, rounded.values, sizeof(pack.words));
    return pack;
  }
};

// The rows stay as they were read, so that they need half as many registers if they are of 16 bits. The result has the type
// of x, or a narrower one. A thread has the same columns of kRows rows, for which it reads parameters of columns once.
template <class Wide, class Rows, class Out, uint32_t kPacks, bool kOfWarp, uint32_t kRows, class Parameters>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    normalize_packs(RowNormForm s, uint32_t rows, uint32_t lanes, Rows x, Parameters parameters, Out* out,
                    AnyTyped means, AnyTyped inverses, Wide epsilon) {
  using T = typename Rows::Type;
  constexpr uint32_t N = kPack<T>;
  static_assert(kRows == 1 || std::is_same_v<Parameters, ColumnParameters<Wide>>);
  __shared__ Wide shared[kMostWarps];
  __shared__ Wide shared_pairs[kRowSumPlaces];
  const RowThreads<kOfWarp> me(lanes, std::integral_constant<uint32_t, kRows>());
  const uint32_t all = s.width / N, count = me.row < rows ? min(kRows, rows - me.row) : 0, packs = count ? all : 0;
  const Wide width = static_cast<Wide>(s.width);
  Pack<T> given[kRows][kPacks];
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r)
    if (r < count)
      each_pack<kPacks, 1>(me, packs,
                           [&](uint32_t p, uint32_t number) { given[r][p] = x.load((me.row + r) * all + number); });
  Wide mean[kRows], inverse[kRows];
  OverRow<Wide> over(me.lanes);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    mean[r] = 0;
    if (s.centred) {
      Wide sum = 0;
      each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) {
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) sum += plain(given[r][p][k]);
      });
      mean[r] = me.over(sum, shared, Plus()) / width;
    }
    Pair<Wide> sums{0, 0};  // of the differences from the mean, and of their squares
    each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) {
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) {
        const Wide difference = plain(given[r][p][k]) - mean[r];
        sums.first += difference, sums.second = fma(difference, difference, sums.second);
      }
    });
    over(sums, shared_pairs);
    Wide squares = sums.second;
    // The rounding error of the mean, as in batch norm (reduce.cu).
    if (s.centred) {
      const Wide corrected = squares - sums.first * sums.first / width;
      squares = corrected < 0 ? Wide(0) : corrected;
    }
    inverse[r] = formulas::batch_norm_inverse(s.summed ? squares : squares / width, epsilon);
  }
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) {
    Wide factor[N], offset[N];
    parameters.template load<T, N>(me.row, number, factor, offset);
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r >= count) break;
      Wide result[N];
#pragma unroll
      for (uint32_t k = 0; k < N; ++k)
        result[k] = fma(factor[k], (plain(given[r][p][k]) - mean[r]) * inverse[r], offset[k]);
      store_pack_of<N>(out, (me.row + r) * all + number, result);
    }
  });
  if (me.lane != 0) return;
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r >= count) break;
    inverses.store<Wide>(me.row + r, inverse[r]);
    if (s.centred) means.store<Wide>(me.row + r, mean[r]);
  }
}

// lanes: of a warp for each row, else as many threads as the block has.
struct BackwardShape {
  bool fits;
  uint32_t lanes, threads;
};
inline BackwardShape backward_shape(uint32_t width, uint32_t values) {  // values: of a thread
  const uint32_t lanes = blocks_for(width, values);
  if (width % values != 0 || lanes > kMostRowThreads) return {};
  if (lanes <= kLanesOfWarp) return {true, power_of_two_from(lanes), kWarpRowThreads};
  return {true, whole_warps(lanes), whole_warps(lanes)};
}

// How many blocks add up gradients of parameters, each of its own rows: enough for about two turns of the largest GPUs.
// Depends on the shape alone, for all dtypes, so that the sums do not depend on the GPU.
inline uint32_t parts_of_rows(uint32_t rows, uint32_t width) {
  const BackwardShape shape = backward_shape(blocks_for(width, 8) * 8, 8);
  if (!shape.fits) return 0;
  const uint32_t most = 256 * (kMostRowThreads / shape.threads),
                 enough = blocks_for(rows, 8 * (shape.threads / shape.lanes));
  return enough < most ? enough : most;
}

// P: packs of a thread. kColumns: columns are entries, whose gradients are added up (and written if `partial` is not
// null). kAdds: dx gets the addend, after it has been rounded.
template <class Wide, class T, class Given, uint32_t P, bool kColumns, bool kAdds>
__global__ void __launch_bounds__(kMostRowThreads)
    normalize_packs_backward(RowNormForm s, uint32_t rows, uint32_t lanes, const T* x, const Given* dy, AnyTyped scale,
                             const Wide* means, const Wide* inverses, const T* addend, T* dx, Pair<Wide>* partial) {
  constexpr uint32_t N = kPack<T>, V = P * N;
  __shared__ Wide shared[kRowSumPlaces];
  const uint32_t group = threadIdx.x / lanes, lane = threadIdx.x - group * lanes, groups = blockDim.x / lanes;
  const uint32_t all = s.width / N, apart = all / P, step = gridDim.x * groups;  // packs of a thread are so far apart
  const bool inside = lane < apart;
  const Wide share = Wide(1) / static_cast<Wide>(s.width);
  OverRow<Wide> over(lanes);
  Wide dscale[V], dshift[V];
#pragma unroll
  for (uint32_t k = 0; k < V; ++k) dscale[k] = 0, dshift[k] = 0;
  Pack<T> given_x[P];
  Pack<Given, N> given_dy[P];
  Wide mean = 0, inverse = 0;
  const auto fetch = [&](uint32_t row) {
    if (row >= rows || !inside) return;
#pragma unroll
    for (uint32_t p = 0; p < P; ++p) {
      given_x[p] = load_pack(x, row * all + lane + p * apart);
      given_dy[p] = load_pack_of<N>(dy, row * all + lane + p * apart);
    }
    if (s.centred) mean = means[row];
    inverse = inverses[row];
  };
  fetch(blockIdx.x * groups + group);
#pragma unroll 1
  for (uint32_t first = blockIdx.x * groups; first < rows; first += step) {
    const uint32_t row = first + group;
    const bool mine = inside && row < rows;
    const Wide inverse_now = inverse;
    Wide xhat[V], g[V];
    Pair<Wide> sums{0, 0};
    if (mine) {
#pragma unroll
      for (uint32_t p = 0; p < P; ++p) widen_pack(given_x[p], xhat + p * N), widen_pack(given_dy[p], g + p * N);
#pragma unroll
      for (uint32_t p = 0; p < P; ++p) {
        Wide factor[N];  // from the cache: there are not enough registers for them
        const uint32_t i = (lane + p * apart) * N;
        if (kColumns && scale.present())
          load_values<T, N>(scale, i, factor);
        else
          fill<N>(factor, kColumns || !scale.present() ? Wide(1) : scale.load<Wide>(entry_of_value(s, row, i)));
#pragma unroll
        for (uint32_t k = p * N; k < (p + 1) * N; ++k) {
          xhat[k] = (xhat[k] - mean) * inverse_now;
          if constexpr (kColumns) dshift[k] += g[k], dscale[k] = fma(g[k], xhat[k], dscale[k]);
          g[k] *= factor[k - p * N];
          sums.first += g[k], sums.second = fma(g[k], xhat[k], sums.second);
        }
      }
    }
    fetch(row + step);  // under way while the block adds
    over(sums, shared);
    if (mine) {
      const Wide sum = s.centred ? sums.first * share : Wide(0), product = s.summed ? sums.second : sums.second * share;
#pragma unroll
      for (uint32_t k = 0; k < V; ++k) g[k] = inverse_now * fma(-xhat[k], product, g[k] - sum);
      if constexpr (kAdds) {
#pragma unroll
        for (uint32_t p = 0; p < P; ++p) {
          const Pack<T> added = load_pack(addend, row * all + lane + p * apart);
#pragma unroll
          for (uint32_t k = 0; k < N; ++k) {
            T stored;
            narrow(g[p * N + k], stored);
            g[p * N + k] = plain(stored) + plain(added[k]);
          }
        }
      }
#pragma unroll
      for (uint32_t p = 0; p < P; ++p) store_pack(dx, row * all + lane + p * apart, g + p * N);
    }
  }
  if (!kColumns || partial == nullptr) return;
  if (groups > 1) {  // the first group adds those of the others, in their order
    __shared__ Pair<Wide> others[V * kWarpRowThreads];
#pragma unroll
    for (uint32_t k = 0; k < V; ++k) others[k * kWarpRowThreads + threadIdx.x] = {dshift[k], dscale[k]};
    __syncthreads();
    if (group != 0) return;
    for (uint32_t other = 1; other < groups; ++other)
#pragma unroll
      for (uint32_t k = 0; k < V; ++k) {
        const Pair<Wide> one = others[k * kWarpRowThreads + other * lanes + lane];
        dshift[k] += one.first, dscale[k] += one.second;
      }
  }
  if (!inside) return;
#pragma unroll
  for (uint32_t k = 0; k < V; ++k)
    partial[blockIdx.x * s.width + (lane + k / N * apart) * N + k % N] = {dshift[k], dscale[k]};
}

constexpr uint32_t kEndColumns = 16, kEndLines = 64;
// The sums of the parts of each column, in a fixed order.
template <class Wide>
__global__ void __launch_bounds__(kEndColumns* kEndLines)
    add_parts(uint32_t width, uint32_t parts, const Pair<Wide>* partial, AnyTyped dscale, AnyTyped dshift) {
  __shared__ Pair<Wide> shared[kEndColumns * kEndLines];
  const uint32_t line = threadIdx.x / kEndColumns, column = blockIdx.x * kEndColumns + threadIdx.x % kEndColumns;
  Pair<Wide> sums{0, 0};
  if (column < width)
#pragma unroll 8
    for (uint32_t part = line; part < parts; part += kEndLines) {
      sums.merge(partial[part * width + column]);
    }
  shared[threadIdx.x] = sums;
  for (uint32_t half = kEndLines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (line >= half) continue;
    shared[threadIdx.x].merge(shared[threadIdx.x + half * kEndColumns]);
  }
  if (line != 0 || column >= width) return;
  if (dshift.present()) dshift.store<Wide>(column, shared[threadIdx.x].first);
  if (dscale.present()) dscale.store<Wide>(column, shared[threadIdx.x].second);
}

// Whether the parameters can be read a pack at a time: an entry for each column, or whole packs of one entry.
template <class T, class Wide>
bool parameters_fit(const RowNormForm& s, const Array& scale, const Array& shift) {
  if (s.places.last) return false;
  if (!scale.data && !shift.data) return true;
  if (has_entry_columns(s)) return has_packs<T, Wide>(scale) && has_packs<T, Wide>(shift);
  return s.repeat % kPack<T> == 0;
}

template <class T>
constexpr uint32_t kRowsOfThread = sizeof(T) <= 4 ? 2 : 1;

// These return whether they have started a kernel.
// `x`: begins where a pack does, as all that it writes.
template <class Wide, class Out, class Rows>
bool start_normalize_packs(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const Rows& x,
                           const RowNormArrays& a, double epsilon) {
  using T = typename Rows::Type;
  const RowShape shape = row_shape(rows, s.width, kPack<T>);
  if (!shape.fits || !parameters_fit<T, Wide>(s, a.scale, a.shift) || !starts_pack(a.out.data)) return false;
  constexpr DType kWide = kDTypeOf<Wide>;
  const bool columns =
      has_entry_columns(s) && (!a.scale.data || a.scale.dtype == kWide) && (!a.shift.data || a.shift.dtype == kWide);
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    const auto start = [&](auto rows_of_thread, auto parameters) {
      constexpr uint32_t kRows = rows_of_thread();
      const uint32_t blocks = blocks_for(shape.blocks, kRows);
      normalize_packs<Wide, Rows, Out, packs(), of_warp(), kRows>
          <<<blocks, shape.threads, 0, stream>>>(s, rows, shape.lanes, x, parameters, static_cast<Out*>(a.out.data),
                                                 AnyTyped(a.mean), AnyTyped(a.inverse), static_cast<Wide>(epsilon));
    };
    if (columns)
      start(std::integral_constant<uint32_t, kRowsOfThread<T>>(),
            ColumnParameters<Wide>{static_cast<const Wide*>(a.scale.data), static_cast<const Wide*>(a.shift.data)});
    else
      start(std::integral_constant<uint32_t, 1>(), SharedParameters<Wide>{s, AnyTyped(a.scale), AnyTyped(a.shift)});
  });
  return true;
}

template <class Wide, class T, class Out>
bool start_normalize_packs(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const RowNormArrays& a,
                           double epsilon) {
  return starts_pack(a.x.data) &&
         start_normalize_packs<Wide, Out>(stream, rows, s, StoredRows<T>{static_cast<const T*>(a.x.data)}, a, epsilon);
}

// The gradients of the parameters too if columns are entries.
template <class Wide, class T, class Given, bool kAdds = false>
bool start_normalize_packs_backward(cudaStream_t stream, uint32_t rows, const RowNormForm& s, void* scratch,
                                    const RowNormBackwardArrays& a) {
  BackwardShape shape = backward_shape(s.width, kPack<T>);
  // Two packs of a thread need more registers than there are for 1024 threads with 16-bit operands.
  const bool two = sizeof(T) > 2 && !shape.fits;
  if (two) shape = backward_shape(s.width, 2 * kPack<T>);
  if (!shape.fits || !parameters_fit<T, Wide>(s, a.scale, {})) return false;
  if (!starts_pack(a.x.data) || !starts_pack(a.dy.data) || !starts_pack(a.dx.data)) return false;
  if (kAdds && !starts_pack(a.addend.data)) return false;
  constexpr DType kWide = kDTypeOf<Wide>;
  if (a.inverse.dtype != kWide || (s.centred && a.mean.dtype != kWide)) return false;
  const bool columns = has_entry_columns(s), sums = a.dscale.data || a.dshift.data;
  if (sums && !columns) return false;
  const uint32_t groups = shape.threads / shape.lanes;
  const uint32_t blocks = sums ? parts_of_rows(rows, s.width) : std::min(blocks_for(rows, groups), uint32_t{4096});
  auto* partial = sums ? static_cast<Pair<Wide>*>(scratch) : nullptr;
  const auto start = [&](auto kernel) {
    kernel<<<blocks, shape.threads, 0, stream>>>(
        s, rows, shape.lanes, static_cast<const T*>(a.x.data), static_cast<const Given*>(a.dy.data), AnyTyped(a.scale),
        static_cast<const Wide*>(a.mean.data), static_cast<const Wide*>(a.inverse.data),
        static_cast<const T*>(a.addend.data), static_cast<T*>(a.dx.data), partial);
  };
  constexpr uint32_t kTwo = sizeof(T) > 2 ? 2 : 1;
  if (two)
    columns ? start(normalize_packs_backward<Wide, T, Given, kTwo, true, kAdds>)
            : start(normalize_packs_backward<Wide, T, Given, kTwo, false, kAdds>);
  else
    columns ? start(normalize_packs_backward<Wide, T, Given, 1, true, kAdds>)
            : start(normalize_packs_backward<Wide, T, Given, 1, false, kAdds>);
  launched("normalize_rows_backward");
  if (!sums) return true;
  add_parts<Wide><<<blocks_for(s.width, kEndColumns), kEndColumns * kEndLines, 0, stream>>>(
      s.width, blocks, partial, AnyTyped(a.dscale), AnyTyped(a.dshift));
  launched("gradients of parameters");
  return true;
}

}  // namespace halfmark::kernels::cuda
