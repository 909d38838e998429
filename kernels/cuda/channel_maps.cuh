// Kernels that compute each element by itself from constants of its channel. A block computes the constants of the channels
// that it needs once; a thread takes `width` neighbours at a time.
//
// A body has kLoads (vectors that a thread reads before it uses the first), Constants and constants(channel), Values<width>
// and load<width>(i), and write<width>(i, values, constants_of).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/channel_sums.cuh"

namespace halfmark::kernels::cuda {

constexpr uint32_t kChannelThreads = 256;

// Channels last: threads have the channels as in sum_last, and every so many-th row.
template <uint32_t width, class Body>
__global__ void __launch_bounds__(kChannelThreads) map_last(Channels c, uint32_t lanes, Body body) {
  using Constants = typename Body::Constants;
  __shared__ Constants shared[width == 1 ? 32 : kMostTileChannels];
  const uint32_t lane = threadIdx.x & (lanes - 1), rows = kChannelThreads / lanes, channels = lanes * width;
  const uint32_t channel = (blockIdx.x * lanes + lane) * width, count = c.outer * c.pixels, step = gridDim.y * rows;
  const uint32_t first = blockIdx.y * rows + threadIdx.x / lanes;
  const uint32_t computed_channel = blockIdx.x * channels + threadIdx.x;
  if (threadIdx.x < channels && computed_channel < c.channels) shared[threadIdx.x] = body.constants(computed_channel);
  __syncthreads();
  if (channel >= c.channels || first >= count) return;
  Constants constants[width];
#pragma unroll
  for (uint32_t k = 0; k < width; ++k) constants[k] = shared[lane * width + k];
  const auto constants_of = [&](uint32_t k) { return constants[k]; };
  for (uint32_t j = first; j < count; j += Body::kLoads * step) {
    typename Body::template Values<width> values[Body::kLoads];
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u)
      if (j + u * step < count) values[u] = body.template load<width>((j + u * step) * c.channels + channel);
#pragma unroll
    for (uint32_t u = 0; u < Body::kLoads; ++u)
      if (j + u * step < count)
        body.template write<width>((j + u * step) * c.channels + channel, values[u], constants_of);
  }
}

// Planes: a block has neighbouring elements, of one channel after another. With width > 1, a plane has at least so many
// elements; `whole`: a multiple of them, so that no vector is in two planes.
template <uint32_t width, bool whole, class Body>
__global__ void __launch_bounds__(kChannelThreads) map_planes(Channels c, Body body) {
  using Constants = typename Body::Constants;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* shared = reinterpret_cast<Constants*>(memory);
  constexpr uint32_t kElements = kChannelThreads * width * Body::kLoads;
  const uint32_t n = c.outer * c.pixels * c.channels, start = blockIdx.x * kElements;
  const uint32_t end = n - start < kElements ? n : start + kElements, plane = start / c.pixels;
  const uint32_t before = start - plane * c.pixels;  // elements of the first plane
  typename Body::template Values<width> values[Body::kLoads];
#pragma unroll
  for (uint32_t u = 0; u < Body::kLoads; ++u) {
    const uint32_t i = start + (u * kChannelThreads + threadIdx.x) * width;
    if (i + width <= end) values[u] = body.template load<width>(i);
  }
  const uint32_t planes = (before + (end - start) - 1) / c.pixels + 1;
  for (uint32_t p = threadIdx.x; p < planes; p += kChannelThreads) shared[p] = body.constants((plane + p) % c.channels);
  __syncthreads();
#pragma unroll
  for (uint32_t u = 0; u < Body::kLoads; ++u) {
    const uint32_t i = start + (u * kChannelThreads + threadIdx.x) * width;
    if (i >= end) return;
    const uint32_t place = before + (i - start), of = place / c.pixels, left = (of + 1) * c.pixels - place;
    if (i + width <= end) {
      const Constants constants = shared[of];
      if constexpr (whole) {
        body.template write<width>(i, values[u], [&](uint32_t) { return constants; });
      } else {
        const Constants following = shared[left < width ? of + 1 : of];
        body.template write<width>(i, values[u], [&](uint32_t k) { return k < left ? constants : following; });
      }
    } else {
#pragma unroll 1
      for (uint32_t k = i; k < end; ++k)
        body.template write<1>(k, body.template load<1>(k),
                               [&](uint32_t) { return shared[(before + (k - start)) / c.pixels]; });
    }
  }
}

template <class Access, class Body>
void map_channels(cudaStream_t stream, const Channels& c, Body body) {
  if (c.last)
    return with_width<Access>(c.channels, [&](auto width) {
      constexpr uint32_t kWidth = decltype(width)::value;
      constexpr uint32_t kBlocks = 2048;
      const uint32_t lanes = lanes_of(c.channels, kWidth), tiles = blocks_for(c.channels, lanes * kWidth);
      const uint32_t enough = blocks_for(c.count(), kChannelThreads / lanes * Body::kLoads);
      const uint32_t rows = std::min(enough, tiles >= kBlocks ? 1 : kBlocks / tiles);
      map_last<kWidth><<<dim3(tiles, rows), kChannelThreads, 0, stream>>>(c, lanes, body);
    });
  const auto start = [&](auto width, auto whole) {
    constexpr uint32_t kWidth = decltype(width)::value, kElements = kChannelThreads * kWidth * Body::kLoads;
    const size_t shared = (kElements / c.pixels + 2) * sizeof(typename Body::Constants);
    map_planes<kWidth, decltype(whole)::value>
        <<<blocks_for(c.elements(), kElements), kChannelThreads, shared, stream>>>(c, body);
  };
  constexpr uint32_t widest = kWidest<Access>;
  constexpr std::integral_constant<uint32_t, widest> vector{};
  constexpr std::integral_constant<uint32_t, 1> one{};
  if (widest == 1 || c.pixels < widest) return start(one, std::true_type{});
  if (c.pixels % widest == 0) return start(vector, std::true_type{});
  start(vector, std::false_type{});
}

}  // namespace halfmark::kernels::cuda
