// Sums over the values of each channel, always in the same order: equal inputs give equal bits, on every GPU. Included by
// device code that sums something of its own.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/arrays.cuh"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

constexpr uint32_t kSumThreads = 256;
constexpr uint32_t kTileChannels = 32,
                   kTileRows = kSumThreads / kTileChannels;  // channels-last: a warp reads neighbouring channels

// How many blocks share a channel. Depends only on the shape, never on the GPU, so that the order of additions is the
// same on every GPU.
inline uint32_t splits_of(const Channels& c) {
  const uint32_t tiles = c.last ? blocks_for(c.channels, kTileChannels) : c.channels;
  const uint32_t enough = blocks_for(c.count(), (c.last ? kTileRows : kSumThreads) * 8);  // >= eight values per thread
  const uint32_t wanted = tiles >= 512 ? 1 : 512 / tiles;
  const uint32_t splits = enough < wanted ? enough : wanted;
  return splits < 64 ? splits : 64;
}

template <class Wide>
struct Pair {
  Wide first = 0, second = 0;
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

// partial[split][channel] = sums of what `body` computes from a channel's values. Each thread calls
// body.prepare(channel) once.
template <class Wide, class Body>
__global__ void __launch_bounds__(kSumThreads) sum_planes(Channels c, Body body, Pair<Wide>* partial) {
  __shared__ Pair<Wide> shared[kSumThreads];
  const uint32_t channel = blockIdx.x, count = c.outer * c.pixels, step = gridDim.y * kSumThreads;
  body.prepare(channel);
  Pair<Wide> sum;
  for (uint32_t j = blockIdx.y * kSumThreads + threadIdx.x; j < count; j += step) {
    const uint32_t image = j / c.pixels;
    body.add((image * c.channels + channel) * c.pixels + (j - image * c.pixels), sum);
  }
  shared[threadIdx.x] = sum;
  sum_tree(shared, threadIdx.x, 1, kSumThreads);
  if (threadIdx.x == 0) partial[blockIdx.y * c.channels + channel] = shared[0];
}

template <class Wide, class Body>
__global__ void __launch_bounds__(kSumThreads) sum_last(Channels c, Body body, Pair<Wide>* partial) {
  __shared__ Pair<Wide> shared[kSumThreads];
  const uint32_t lane = threadIdx.x % kTileChannels, row = threadIdx.x / kTileChannels;
  const uint32_t channel = blockIdx.x * kTileChannels + lane, count = c.outer * c.pixels, step = gridDim.y * kTileRows;
  Pair<Wide> sum;
  if (channel < c.channels) {
    body.prepare(channel);
    for (uint32_t j = blockIdx.y * kTileRows + row; j < count; j += step) body.add(j * c.channels + channel, sum);
  }
  shared[threadIdx.x] = sum;
  sum_tree(shared, threadIdx.x, kTileChannels, kTileRows);
  if (row == 0 && channel < c.channels) partial[blockIdx.y * c.channels + channel] = shared[lane];
}

// The sums of a channel over its splits, in order; `body` computes the final result from them.
template <class Wide, class Body>
__global__ void __launch_bounds__(kSumThreads)
    finish(Channels c, uint32_t splits, const Pair<Wide>* partial, Body body) {
  const uint32_t channel = blockIdx.x * kSumThreads + threadIdx.x;
  if (channel >= c.channels) return;
  Pair<Wide> sum;
  for (uint32_t s = 0; s < splits; ++s) {
    sum.first += partial[s * c.channels + channel].first;
    sum.second += partial[s * c.channels + channel].second;
  }
  body(channel, sum);
}

template <class Wide, class Body, class Finish>
void sum_channels(cudaStream_t stream, const Channels& c, Body body, Pair<Wide>* partial, Finish end) {
  const uint32_t splits = splits_of(c);
  if (c.last)
    sum_last<Wide><<<dim3(blocks_for(c.channels, kTileChannels), splits), kSumThreads, 0, stream>>>(c, body, partial);
  else
    sum_planes<Wide><<<dim3(c.channels, splits), kSumThreads, 0, stream>>>(c, body, partial);
  launched("sums of channels");
  finish<Wide><<<blocks_for(c.channels, kSumThreads), kSumThreads, 0, stream>>>(c, splits, partial, end);
  launched("end of sums of channels");
}

__device__ inline uint32_t channel_of(const Channels& c, uint32_t i) {
  return c.last ? i % c.channels : i / c.pixels % c.channels;
}

// Scratch: the partial sums, then two vectors of one wide element per channel.
template <class Wide>
struct Scratch {
  Pair<Wide>* partial;
  Wide* first;
  Wide* second;
  Scratch(void* memory, const Channels& c)
      : partial(static_cast<Pair<Wide>*>(memory)),
        first(static_cast<Wide*>(memory) + size_t{2} * splits_of(c) * c.channels),
        second(first + c.channels) {}
};

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
