// The gradient of an embedding: for every entry of the table the sum of the rows of dy with its index, in their order.
//
// A warp finds the rows of an entry in one of two ways, which give the same sums. Of few rows it looks at every index. Of
// many, each entry first gets a chain of its rows, in the order in which threads came; a warp collects the chain and
// sorts it. An entry with more rows than a warp has lanes is treated as those of few.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/arrays.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256, kLanes = 32, kEntries = 4, kAll = 0xffffffff, kNone = 0xffffffff;
constexpr uint32_t kAtATime = 4;  // rows that a warp reads
// From so many rows on there are chains: a look at every index takes longer than the three launches that make them.
constexpr uint32_t kManyRows = 512;
// With so many entries a warp has all features of an entry, so that it sorts once; with fewer, a part of them.
constexpr uint32_t kManyEntries = 4096;
constexpr uint32_t kMostAlongY = 65535;  // blocks of a grid

// The first row of each entry and the one after each row; kNone: there is none. Without chains both are null.
struct Chains {
  uint32_t *first, *next;
};

__global__ void __launch_bounds__(kThreads) chain_rows(EmbeddingSum s, const int32_t* indices, Chains chains) {
  const uint32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= s.rows) return;
  const uint32_t entry = static_cast<uint32_t>(indices[row]);
  if (entry < s.entries) chains.next[row] = atomicExch(&chains.first[entry], row);
}

// The rows of one entry: lane k has row k of the chain. Of more than kLanes rows, `count` is larger and the lanes have some.
struct Collected {
  uint32_t count, mine;
};
__device__ __forceinline__ Collected collect(const Chains& chains, uint32_t entry, uint32_t lane) {
  Collected rows{0, kNone};
  for (uint32_t row = chains.first[entry]; row != kNone && rows.count <= kLanes; row = chains.next[row], ++rows.count)
    if (rows.count == lane) rows.mine = row;
  return rows;
}
// Lane k has the row with k smaller ones.
__device__ __forceinline__ void sort(Collected& rows, uint32_t lane) {
  uint32_t smaller = 0, sorted = kNone;
  for (uint32_t k = 0; k < rows.count; ++k) smaller += __shfl_sync(kAll, rows.mine, k) < rows.mine ? 1 : 0;
  for (uint32_t k = 0; k < rows.count; ++k) {
    const uint32_t place = __shfl_sync(kAll, smaller, k), row = __shfl_sync(kAll, rows.mine, k);
    if (place == lane) sorted = row;
  }
  rows.mine = sorted;
}

// A warp has kLanes * kCount features of an entry at a time.
template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kLanes* kEntries)
    add_rows(EmbeddingSum s, const int32_t* indices, Chains chains, Access dy, Access dtable) {
  const uint32_t lane = threadIdx.x % kLanes, entry = blockIdx.x * kEntries + threadIdx.x / kLanes;
  if (entry >= s.entries) return;
  const bool is_summed = static_cast<int64_t>(entry) != s.padding;
  Collected rows{is_summed ? kLanes + 1 : 0, kNone};
  if (chains.first && is_summed) rows = collect(chains, entry, lane);
  const bool is_sorted = rows.count <= kLanes;
  if (is_sorted) sort(rows, lane);
  for (uint32_t start = blockIdx.y * kLanes * kCount; start < s.features; start += gridDim.y * kLanes * kCount) {
    const uint32_t feature = start + lane * kCount;
    Wide sums[kCount] = {};
    const auto load = [&](uint32_t row, Wide* values) {
      if (feature < s.features) load_some<Wide, kCount>(dy, row * s.features + feature, values);
    };
    const auto add = [&](const Wide* values) {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) sums[k] += values[k];
    };
    if (is_sorted) {
      for (uint32_t first = 0; first < rows.count; first += kAtATime) {  // read before one is added
        uint32_t next[kAtATime];
        Wide values[kAtATime][kCount] = {};
#pragma unroll
        for (uint32_t k = 0; k < kAtATime; ++k) next[k] = __shfl_sync(kAll, rows.mine, first + k);
#pragma unroll
        for (uint32_t k = 0; k < kAtATime; ++k)
          if (first + k < rows.count) load(next[k], values[k]);
#pragma unroll
        for (uint32_t k = 0; k < kAtATime; ++k)
          if (first + k < rows.count) add(values[k]);
      }
    } else {
      for (uint32_t first = 0; first < s.rows; first += kLanes) {
        const bool mine = first + lane < s.rows && indices[first + lane] == static_cast<int32_t>(entry);
        for (uint32_t found = __ballot_sync(kAll, mine); found != 0; found &= found - 1) {
          Wide values[kCount] = {};
          load(first + __ffs(static_cast<int>(found)) - 1, values);
          add(values);
        }
      }
    }
    if (feature < s.features) store_some<Wide, kCount>(dtable, entry * s.features + feature, sums);
  }
}

template <class Wide, uint32_t kCount, class Access>
void start_add_rows(cudaStream_t stream, const EmbeddingSum& s, const int32_t* indices, const Chains& chains,
                    const Access& dy, const Access& dtable) {
  const uint32_t parts = blocks_for(s.features, kLanes * kCount),
                 along_y = chains.first && s.entries >= kManyEntries ? 1 : std::min(parts, kMostAlongY);
  add_rows<Wide, kCount><<<dim3(blocks_for(s.entries, kEntries), along_y), kLanes * kEntries, 0, stream>>>(
      s, indices, chains, dy, dtable);
}

}  // namespace

size_t embedding_scratch(const EmbeddingSum& s) {
  return s.rows < kManyRows ? 0 : (size_t{s.entries} + s.rows) * sizeof(uint32_t);
}

void launch_add_rows(cudaStream_t stream, const EmbeddingSum& s, const int32_t* indices, void* scratch, Array dy_data,
                     Array dtable_data) {
  Chains chains{};
  if (scratch) {
    chains.first = static_cast<uint32_t*>(scratch), chains.next = chains.first + s.entries;
    static_assert(kNone == 0xffffffff);  // bytes of 0xff
    check(cudaMemsetAsync(chains.first, 0xff, size_t{s.entries} * sizeof(uint32_t), stream), "cudaMemsetAsync");
    chain_rows<<<blocks_for(s.rows, kThreads), kThreads, 0, stream>>>(s, indices, chains);
    launched("rows of an embedding's entries");
  }
  with_access({dy_data.dtype, dtable_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access dy(dy_data), dtable(dtable_data);
    if constexpr (Access::kFours)
      if (dy.aligned && dtable.aligned && s.features % Access::kNeighbours == 0)
        return start_add_rows<Wide, Access::kNeighbours>(stream, s, indices, chains, dy, dtable);
    start_add_rows<Wide, 1>(stream, s, indices, chains, dy, dtable);
  });
  launched("embedding_backward");
}

}  // namespace halfmark::kernels::cuda
