// Images of another size. Where a row or column of the result comes from is computed once, by one thread for each; so is
// which rows or columns of the result a row or column of the image goes to.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/pixels.cuh"
#include "kernels/cuda/resample_twice.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// One row or column of the result: `count` sources from `first` on, the first with one weight and the others with another.
template <class Wide>
struct SourceOf {
  uint32_t first, count;
  Wide weight, others;
  __device__ __forceinline__ Wide weight_of(uint32_t i) const { return i == first ? weight : others; }
};
using Source = SourceOf<double>;  // as it is computed
struct Range {
  uint32_t begin, end;
};

__device__ Source between(double source, uint32_t in) {
  const double down = floor(source);
  const uint32_t first = down > in - 1.0 ? in - 1 : static_cast<uint32_t>(down);
  const double far = source - first;
  if (first + 1 >= in || far == 0) return {first, 1, 1, 0};
  return {first, 2, 1 - far, far};
}

// As sources_of() of operations/image.h.
__device__ Source source_of(Resampling resampling, uint32_t i, uint32_t in, uint32_t out) {
  const uint64_t wide = i;
  const double place = i, size = in, wanted = out;
  if (resampling == Resampling::bilinear) return between(fmax(0.0, (place + 0.5) * size / wanted - 0.5), in);
  if (resampling == Resampling::bilinear_corners) return between(out > 1 ? place * (size - 1) / (wanted - 1) : 0, in);
  const uint32_t first = static_cast<uint32_t>(wide * in / out);
  if (resampling == Resampling::nearest) return {first, 1, 1, 0};
  const uint32_t count = static_cast<uint32_t>(((wide + 1) * in + out - 1) / out) - first;
  return {first, count, 1.0 / count, 1.0 / count};
}

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    find_sources(Resampling resampling, uint32_t in, uint32_t out, SourceOf<Wide>* all) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= out) return;
  const Source source = source_of(resampling, i, in, out);
  all[i] = {source.first, source.count, static_cast<Wide>(source.weight), static_cast<Wide>(source.others)};
}

// First and last sources do not decrease, so that the results of a source are neighbours.
template <class Wide>
__global__ void __launch_bounds__(kThreads)
    find_results(uint32_t in, uint32_t out, const SourceOf<Wide>* all, Range* ranges) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= in) return;
  uint32_t begin = 0, end = 0;
  for (uint32_t o = 0; o < out; ++o) {
    if (all[o].first + all[o].count <= i) begin = o + 1;
    if (all[o].first <= i) end = o + 1;
  }
  ranges[i] = {begin, end};
}

template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kThreads)
    resample(Walk walk, Image xs, const SourceOf<Wide>* rows, const SourceOf<Wide>* columns, Access x, Access out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const Steps steps(xs, p);
  const SourceOf<Wide> row = rows[p.y], column = columns[p.x];
  Wide sums[kCount] = {};
  for (uint32_t y = row.first; y < row.first + row.count; ++y)
    for (uint32_t c = column.first; c < column.first + column.count; ++c) {
      const Wide weight = row.weight_of(y) * column.weight_of(c);
      Wide values[kCount];
      load_some<Wide, kCount>(x, steps.at(static_cast<int>(y), static_cast<int>(c)), values);
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) sums[k] += weight * values[k];
    }
  store_some<Wide, kCount>(out, i * kCount, sums);
}

template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kThreads)
    resample_backward(Walk walk, Image dys, const SourceOf<Wide>* rows, const SourceOf<Wide>* columns,
                      const Range* row_ranges, const Range* column_ranges, Access dy, Access dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const Steps steps(dys, p);
  const Range along_y = row_ranges[p.y], along_x = column_ranges[p.x];
  Wide sums[kCount] = {};
  for (uint32_t y = along_y.begin; y < along_y.end; ++y)
    for (uint32_t c = along_x.begin; c < along_x.end; ++c) {
      const Wide weight = rows[y].weight_of(p.y) * columns[c].weight_of(p.x);
      Wide values[kCount];
      load_some<Wide, kCount>(dy, steps.at(static_cast<int>(y), static_cast<int>(c)), values);
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) sums[k] += weight * values[k];
    }
  store_some<Wide, kCount>(dx, i * kCount, sums);
}

// In the scratch memory: the sources of the rows and of the columns, then the ranges of both.
template <class Wide>
struct Tables {
  SourceOf<Wide>*rows, *columns;
  Range *row_ranges, *column_ranges;
  Tables(void* scratch, const Image& x, const Image& out)
      : rows(static_cast<SourceOf<Wide>*>(scratch)),
        columns(rows + out.h),
        row_ranges(reinterpret_cast<Range*>(columns + out.w)),
        column_ranges(row_ranges + x.h) {}
};

template <class Wide>
Tables<Wide> filled(cudaStream_t stream, Resampling resampling, void* scratch, const Image& x, const Image& out,
                    bool ranges) {
  const Tables<Wide> tables(scratch, x, out);
  const auto fill = [&](uint32_t in, uint32_t wanted, SourceOf<Wide>* sources, Range* results) {
    find_sources<<<blocks_for(wanted, kThreads), kThreads, 0, stream>>>(resampling, in, wanted, sources);
    launched("sources of resampling");
    if (!ranges) return;
    find_results<<<blocks_for(in, kThreads), kThreads, 0, stream>>>(in, wanted, sources, results);
    launched("results of resampling");
  };
  fill(x.h, out.h, tables.rows, tables.row_ranges);
  fill(x.w, out.w, tables.columns, tables.column_ranges);
  return tables;
}

}  // namespace

size_t resample_scratch(const Image& x, const Image& out) {
  return (size_t{out.h} + out.w) * sizeof(Source) + (size_t{x.h} + x.w) * sizeof(Range);
}

void launch_resample(cudaStream_t stream, Resampling resampling, void* scratch, const Image& x, const Image& out,
                     Array x_data, Array out_data) {
  with_access({x_data.dtype, out_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access from(x_data), to(out_data);
    if constexpr (Access::kFours)
      if (is_twice(resampling, x, out)) return start_twice<Wide>(stream, x, out, from, to);
    const auto tables = filled<Wide>(stream, resampling, scratch, x, out, false);
    with_channels(x, out, from, to, [&](auto channels) {
      constexpr uint32_t kCount = decltype(channels)::value;
      const Walk walk(out, kCount);
      resample<Wide, kCount>
          <<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(walk, x, tables.rows, tables.columns, from, to);
    });
  });
  launched("resample2d");
}

void launch_resample_backward(cudaStream_t stream, Resampling resampling, void* scratch, const Image& dy,
                              const Image& dx, Array dy_data, Array dx_data) {
  with_access({dy_data.dtype, dx_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access from(dy_data), to(dx_data);
    if constexpr (Access::kFours)
      if (is_twice(resampling, dx, dy)) return start_twice_backward<Wide>(stream, dy, dx, from, to);
    const auto tables = filled<Wide>(stream, resampling, scratch, dx, dy, true);
    with_channels(dy, dx, from, to, [&](auto channels) {
      constexpr uint32_t kCount = decltype(channels)::value;
      const Walk walk(dx, kCount);
      resample_backward<Wide, kCount><<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(
          walk, dy, tables.rows, tables.columns, tables.row_ranges, tables.column_ranges, from, to);
    });
  });
  launched("resample2d_backward");
}

}  // namespace halfmark::kernels::cuda
