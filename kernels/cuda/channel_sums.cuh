// Sums over the values of each channel, always in the same order: equal inputs give equal bits, on every GPU. Included by
// device code that sums something of its own.
//
// A thread sums the values of `width` neighbouring channels (channels last) or of one channel; the threads of a block that
// have the same channel, and then the blocks, are merged. What is summed is a body:
//   Sum            what is merged: Pair, or Moments of values summed relative to a number near them
//   kLoads         vectors that a thread reads before it uses the first
//   Values<width>  what is read by load<width>(i)
//   Constants      of a channel, by constants(channel); with Moments the number near the values
//   add(values, k, constants, pair)
//   write<width>(i, values, constants_of)  after element i .. of width neighbours have been added
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

constexpr uint32_t kSumThreads = 256, kSumWarps = kSumThreads / 32;
constexpr uint32_t kMostTileChannels = 128;

// Channels last: how many lanes have neighbouring channels, `width` each; the other threads of the block have other rows.
// Rows of at least 32 channels (or all) are read together.
inline uint32_t lanes_of(uint32_t channels, uint32_t width) {
  const uint32_t groups = channels / width;
  uint32_t lanes = kMostTileChannels / width < 32 ? kMostTileChannels / width : 32;
  while (lanes > 32 / width && groups % lanes != 0) lanes /= 2;
  while (lanes > 1 && lanes / 2 >= groups) lanes /= 2;
  return lanes;
}

// How many blocks share a channel. Depends only on the shape, never on the GPU, so that the order of additions is the
// same on every GPU.
inline uint32_t splits_of(const Channels& c, uint32_t width) {
  constexpr uint32_t kBlocks = 1024, kLeastValues = 8;  // 8 blocks for each of 128 processors; of a thread
  const uint32_t lanes = c.last ? lanes_of(c.channels, width) : 1;
  const uint32_t tiles = c.last ? blocks_for(c.channels, lanes * width) : c.channels;
  const uint32_t units = c.last ? c.count() : c.count() / width;
  const uint32_t enough = blocks_for(units, kSumThreads / lanes * kLeastValues);
  const uint32_t wanted = tiles >= kBlocks ? 1 : kBlocks / tiles;
  return enough < wanted ? enough : wanted;
}
inline uint32_t splits_of(const Channels& c) {  // at most
  uint32_t most = 1;
  for (const uint32_t width : {1, 2, 4, 8}) most = std::max(most, splits_of(c, width));
  return most;
}

// Without initial values, as variables in shared memory must be: {} is a sum of nothing.
template <class Wide>
struct alignas(2 * sizeof(Wide)) Pair {
  Wide first, second;
  __device__ __forceinline__ void merge(const Pair& other) { first += other.first, second += other.second; }
  __device__ __forceinline__ Pair below(uint32_t distance) const {
    return {__shfl_down_sync(0xffffffffu, first, distance), __shfl_down_sync(0xffffffffu, second, distance)};
  }
  static constexpr bool kShifted = false;
  template <class Constants>
  static __device__ __forceinline__ Pair of(const Pair& sums, const Constants&, uint32_t) {
    return sums;
  }
};

// Of `count` values: their mean is shift + offset, and `squares` the sum of the squared deviations from it. The two parts
// of the mean keep what it needs beyond its precision where it is much larger than the deviations. {} is of no value.
template <class Wide>
struct alignas(16) Moments {
  static constexpr bool kShifted = true;
  Wide count, shift, offset, squares;
  // Chan, Golub and LeVeque 1983. An infinity gives an infinite mean, as a sum would.
  __device__ __forceinline__ void merge(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const Wide all = count + other.count, inverse = Wide(1) / all, share = other.count * inverse;
    const Wide theirs = (other.shift - shift) + other.offset, difference = theirs - offset;
    squares += other.squares + difference * difference * (count * share);
    offset = offset * (count * inverse) + theirs * share;
    count = all;
  }
  __device__ __forceinline__ Moments below(uint32_t distance) const {
    return {__shfl_down_sync(0xffffffffu, count, distance), __shfl_down_sync(0xffffffffu, shift, distance),
            __shfl_down_sync(0xffffffffu, offset, distance), __shfl_down_sync(0xffffffffu, squares, distance)};
  }
  // From sums of x - shift and of its square.
  static __device__ __forceinline__ Moments of(const Pair<Wide>& sums, Wide shift, uint32_t count) {
    if (count == 0) return {};
    const Wide n = static_cast<Wide>(count), inverse = Wide(1) / n, offset = sums.first * inverse;
    // Of equal values the difference can be negative by rounding; squares that overflow are not subtracted from.
    const Wide difference =
        isinf(sums.second) && isfinite(sums.first) ? sums.second : sums.second - sums.first * offset;
    return {n, shift, offset, difference < 0 ? Wide(0) : difference};
  }
};

// Adds `count` neighbours, `stride` apart in shared memory, pairwise into the first: a tree of fixed shape.
template <class Wide>
__device__ void sum_tree(Pair<Wide>* shared, uint32_t position, uint32_t stride, uint32_t count) {
  for (uint32_t half = count / 2; half > 0; half /= 2) {
    __syncthreads();
    if (position / stride < half) {
      shared[position].first += shared[position + half * stride].first;
      shared[position].second += shared[position + half * stride].second;
    }
  }
}

// The number of a thread's values that are `step` apart, the first being `first`.
__device__ __forceinline__ uint32_t values_of(uint32_t first, uint32_t count, uint32_t step) {
  return first < count ? (count - 1 - first) / step + 1 : 0;
}

// Numbers near the values that the lanes with the same channel start with, of which x has the sums. Their count is a power
// of two.
template <uint32_t width, class Wide>
__device__ __forceinline__ void find_shifts(Wide* x, uint32_t terms, uint32_t lanes) {
  for (uint32_t distance = lanes; distance < 32; distance *= 2) {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) x[k] += __shfl_xor_sync(0xffffffffu, x[k], distance);
  }
  const Wide factor = Wide(1) / static_cast<Wide>(terms * (32 / lanes));
#pragma unroll
  for (uint32_t k = 0; k < width; ++k) x[k] = isfinite(x[k]) ? x[k] * factor : Wide(0);
}

// The sums of one warp after another, of each of `channels` neighbouring channels: to thread t those of channel t.
template <class Sum>
__device__ __forceinline__ Sum over_warps(const Sum* shared, uint32_t channels) {
  Sum sum = shared[threadIdx.x];
  for (uint32_t warp = 1; warp < kSumWarps; ++warp) sum.merge(shared[warp * channels + threadIdx.x]);
  return sum;
}

// A channel's only block ends its sum at once; else the sums are partial[block][channel].
template <class Sum, class End>
__device__ __forceinline__ void hand_over(const Channels& c, uint32_t channel, const Sum& sum, Sum* partial, End& end) {
  if (gridDim.y == 1) return end(channel, sum);
  partial[blockIdx.y * c.channels + channel] = sum;
}

template <class Wide, uint32_t width, class Body, class End>
__global__ void __launch_bounds__(kSumThreads) sum_planes(Channels c, Body body, typename Body::Sum* partial, End end) {
  using Sum = typename Body::Sum;
  __shared__ Sum shared[kSumWarps];
  const uint32_t channel = blockIdx.x, per_plane = c.pixels / width, units = c.outer * per_plane;
  const uint32_t step = gridDim.y * kSumThreads, first = blockIdx.y * kSumThreads + threadIdx.x;
  const uint32_t mine = values_of(first, units, step), start = first < units ? first : units - 1;
  const uint32_t images_of_step = step / per_plane, rest_of_step = step % per_plane;
  uint32_t image = start / per_plane, place = start - image * per_plane;
  const auto element = [&] { return (image * c.channels + channel) * c.pixels + place * width; };
  const uint32_t any = element();
  typename Body::template Values<width> values[Body::kLoads];
  uint32_t at[Body::kLoads];
  const auto load = [&](uint32_t left) {
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u) {
      at[u] = u < left ? element() : any;
      values[u] = body.template load<width>(at[u]);
      image += images_of_step, place += rest_of_step;
      if (place >= per_plane) place -= per_plane, ++image;
    }
  };
  load(mine);
  typename Body::Constants constants;
  if constexpr (Sum::kShifted) {
    constants = 0;
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u)
#pragma unroll
      for (uint32_t k = 0; k < width; ++k) constants += values[u].x[k];
    find_shifts<1>(&constants, Body::kLoads * width, 1);
  } else {
    constants = body.constants(channel);
  }
  Pair<Wide> sums[width] = {};
  for (uint32_t left = mine;;) {
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u) {
      if (u >= left) continue;
#pragma unroll
      for (uint32_t k = 0; k < width; ++k) body.add(values[u], k, constants, sums[k]);
      body.template write<width>(at[u], values[u], [&](uint32_t) { return constants; });
    }
    if (left <= Body::kLoads) break;
    left -= Body::kLoads;
    load(left);
  }
#pragma unroll
  for (uint32_t half = width / 2; half > 0; half /= 2)
#pragma unroll
    for (uint32_t k = 0; k < half; ++k) sums[k].merge(sums[k + half]);
  uint32_t count = mine * width;
  for (uint32_t distance = 16; distance > 0; distance /= 2) {
    sums[0].merge(sums[0].below(distance));
    if constexpr (Sum::kShifted) count += __shfl_down_sync(0xffffffffu, count, distance);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = Sum::of(sums[0], constants, count);
  __syncthreads();
  if (threadIdx.x == 0) hand_over(c, channel, over_warps(shared, 1), partial, end);
}

template <class Wide, uint32_t width, class Body, class End>
__global__ void __launch_bounds__(kSumThreads)
    sum_last(Channels c, uint32_t lanes, Body body, typename Body::Sum* partial, End end) {
  using Sum = typename Body::Sum;
  __shared__ Sum shared[kSumWarps * (width == 1 ? 32 : kMostTileChannels)];
  const uint32_t lane = threadIdx.x & (lanes - 1), row = threadIdx.x / lanes, rows = kSumThreads / lanes;
  const uint32_t group = blockIdx.x * lanes + lane, groups = c.channels / width;
  const uint32_t channel = (group < groups ? group : groups - 1) * width, count = c.outer * c.pixels;
  const uint32_t step = gridDim.y * rows, first = blockIdx.y * rows + row;
  const uint32_t mine = group < groups ? values_of(first, count, step) : 0;
  const uint32_t any = (first < count ? first : count - 1) * c.channels + channel;
  typename Body::template Values<width> values[Body::kLoads];
  uint32_t at[Body::kLoads], next = any;
  const auto load = [&](uint32_t left) {
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u) {
      at[u] = u < left ? next : any;
      values[u] = body.template load<width>(at[u]);
      next += step * c.channels;
    }
  };
  load(mine);
  using Constants = typename Body::Constants;
  Constants constants[width];
  const uint32_t channels = lanes * width;  // of the block
  const uint32_t final_channel = blockIdx.x * channels + threadIdx.x;
  const bool is_final = threadIdx.x < channels && final_channel < c.channels;
  if constexpr (Sum::kShifted) {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      constants[k] = 0;
#pragma unroll
      for (uint32_t u = 0; u < Body::kLoads; ++u) constants[k] += values[u].x[k];
    }
    find_shifts<width>(constants, Body::kLoads, lanes);
  } else if constexpr (!std::is_empty_v<Constants>) {
    __shared__ Constants known[width == 1 ? 32 : kMostTileChannels];
    if (is_final) known[threadIdx.x] = body.constants(final_channel);
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) constants[k] = known[channel - blockIdx.x * channels + k];
  }
  Pair<Wide> sums[width] = {};
  for (uint32_t left = mine;;) {
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u) {
      if (u >= left) continue;
#pragma unroll
      for (uint32_t k = 0; k < width; ++k) body.add(values[u], k, constants[k], sums[k]);
      body.template write<width>(at[u], values[u], [&](uint32_t k) { return constants[k]; });
    }
    if (left <= Body::kLoads) break;
    left -= Body::kLoads;
    load(left);
  }
  uint32_t of_channel = mine;
  for (uint32_t distance = 16; distance >= lanes; distance /= 2) {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) sums[k].merge(sums[k].below(distance));
    if constexpr (Sum::kShifted) of_channel += __shfl_down_sync(0xffffffffu, of_channel, distance);
  }
  if (threadIdx.x % 32 < lanes)
#pragma unroll
    for (uint32_t k = 0; k < width; ++k)
      shared[threadIdx.x / 32 * channels + lane * width + k] = Sum::of(sums[k], constants[k], of_channel);
  __syncthreads();
  if (is_final) hand_over(c, final_channel, over_warps(shared, channels), partial, end);
}

// Merges the sums of a channel over its blocks; `end` computes the result from them. A block has `lanes` channels.
template <class Sum, class End>
__global__ void __launch_bounds__(kSumThreads)
    finish(uint32_t channels, uint32_t lanes, uint32_t splits, const Sum* partial, End end) {
  constexpr uint32_t kLoads = 4;
  __shared__ Sum shared[kSumThreads];
  const uint32_t lane = threadIdx.x & (lanes - 1), channel = blockIdx.x * lanes + lane, rows = kSumThreads / lanes;
  const uint32_t safe = channel < channels ? channel : channels - 1;
  Sum sum{};
  for (uint32_t s = threadIdx.x / lanes; s < splits; s += kLoads * rows) {
    Sum loaded[kLoads];
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u)
      loaded[u] = partial[(s + u * rows < splits ? s + u * rows : s) * channels + safe];
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u)
      if (s + u * rows < splits) sum.merge(loaded[u]);
  }
  for (uint32_t distance = 16; distance >= lanes; distance /= 2) sum.merge(sum.below(distance));
  if (threadIdx.x % 32 < lanes) shared[threadIdx.x / 32 * lanes + lane] = sum;
  __syncthreads();
  if (threadIdx.x < lanes && channel < channels) end(channel, over_warps(shared, lanes));
}

// `width` divides the channels (channels last) or the pixels.
template <class Wide, uint32_t width, class Body, class End>
void sum_vectors(cudaStream_t stream, const Channels& c, Body body, typename Body::Sum* partial, End end) {
  const uint32_t splits = splits_of(c, width), sum_lanes = lanes_of(c.channels, width);
  if (c.last)
    sum_last<Wide, width><<<dim3(blocks_for(c.channels, sum_lanes * width), splits), kSumThreads, 0, stream>>>(
        c, sum_lanes, body, partial, end);
  else
    sum_planes<Wide, width><<<dim3(c.channels, splits), kSumThreads, 0, stream>>>(c, body, partial, end);
  launched("sums of channels");
  if (splits == 1) return;
  const uint32_t lanes = splits > 32 ? 4 : 32;
  finish<<<blocks_for(c.channels, lanes), kSumThreads, 0, stream>>>(c.channels, lanes, splits, partial, end);
  launched("end of sums of channels");
}

// Of a body that takes one value at a time: add(i, pair).
template <class Wide, class Body>
struct OneAtATime {
  Body body;
  using Sum = Pair<Wide>;
  struct Constants {};
  static constexpr uint32_t kLoads = 4;
  template <uint32_t>
  using Values = uint32_t;
  template <uint32_t>
  __device__ uint32_t load(uint32_t i) const {
    return i;
  }
  __device__ Constants constants(uint32_t) const { return {}; }
  __device__ void add(uint32_t i, uint32_t, const Constants&, Pair<Wide>& sum) const { body.add(i, sum); }
  template <uint32_t, class F>
  __device__ void write(uint32_t, uint32_t, F) const {}
};

template <class Wide, class Body, class End>
void sum_channels(cudaStream_t stream, const Channels& c, Body body, Pair<Wide>* partial, End end) {
  sum_vectors<Wide, 1>(stream, c, OneAtATime<Wide, Body>{body}, partial, end);
}

// with_access, but in the arithmetic that the scratch was sized for.
template <class F>
void with_wide_access(std::initializer_list<DType> dtypes, std::initializer_list<DType> others, bool wide, F&& f) {
  with_access(dtypes, others, [&](auto choice) {
    using Wide = typename decltype(choice)::Wide;
    if (wide != (sizeof(Wide) == sizeof(double))) throw Error("scratch memory of the wrong width");
    f(choice);
  });
}

}  // namespace halfmark::kernels::cuda
