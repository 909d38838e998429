// Pooling to half the size where the columns of a row are neighbours (channels are not last): windows of 2 x 2, or of
// 3 x 3 with a padding of one, two apart. A thread has neighbouring results of a row, whose windows begin in twice as many
// columns.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/images.cuh"
#include "kernels/cuda/pool_average.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {

constexpr uint32_t kPoolRowThreads = 256;

// The results of a thread. Forward it reads one or two accesses of 16 bytes in a row, and backward it writes one: with two,
// the threads of a warp would write every other half of a sector, and then the others.
template <class Access>
constexpr uint32_t kPoolRowResults = 0;  // of a type known only at run time: none
template <class T>
constexpr uint32_t kPoolRowResults<Typed<T>> = sizeof(T) < 2    ? 0
                                               : sizeof(T) == 8 ? 2
                                                                : 4;
template <class Access>
constexpr uint32_t kPoolRowGradients = 0;
template <class T>
constexpr uint32_t kPoolRowGradients<Typed<T>> = sizeof(T) < 2 ? 0 : 8 / sizeof(T);

struct PoolRows {
  uint32_t threads, height, width;  // of the image that is pooled
  Divisor groups, rows;             // threads of a row of the result; rows of the result
  const uint8_t* in_indices;        // backward; null: the average
  uint8_t* indices;                 // forward; null: not wanted
};

// Where the results of thread i are.
struct PoolPlace {
  uint32_t group, y, plane;
  __device__ __forceinline__ PoolPlace(const PoolRows& s, uint32_t i) {
    group = i, y = s.groups.divide(group), plane = s.rows.divide(y);
  }
};

// 2 or 3: the window that these kernels take; 0: another one, or images that do not fit.
inline int pool_rows_kernel(const Image& in, const Image& result, const WindowArgs& w, uint32_t results) {
  const bool is_square = w.kernel_h == w.kernel_w && w.pad_h == w.pad_w && w.stride_h == 2 && w.stride_w == 2;
  const bool is_known = (w.kernel_h == 2 && w.pad_h == 0) || (w.kernel_h == 3 && w.pad_h == 1);
  const bool fits =
      !in.last && !result.last && in.w % (2 * results) == 0 && in.w == 2 * result.w && in.h == 2 * result.h;
  return is_square && is_known && fits ? w.kernel_h : 0;
}

template <class Wide, int kKernel, bool kAverage, class Access>
__global__ void __launch_bounds__(kPoolRowThreads) pool_rows(PoolRows s, Average<Wide> average, Access x, Access out) {
  constexpr uint32_t kResults = kPoolRowResults<Access>, kColumns = 2 * kResults;
  constexpr int kPad = kKernel - 2;
  const uint32_t i = blockIdx.x * kPoolRowThreads + threadIdx.x;
  if (i >= s.threads) return;
  const PoolPlace place(s, i);
  Wide results[kResults] = {};
  Neighbours<uint8_t, kResults> winners;
#pragma unroll
  for (uint32_t j = 0; j < kResults; ++j) winners.values[j] = 0xff;  // no element yet
#pragma unroll
  for (int a = 0; a < kKernel; ++a) {
    const int y = 2 * static_cast<int>(place.y) - kPad + a;
    if (y < 0 || y >= static_cast<int>(s.height)) continue;
    const uint32_t first = (place.plane * s.height + static_cast<uint32_t>(y)) * s.width + place.group * kColumns;
    Wide values[kPad + kColumns];
    load_some<Wide, kColumns>(x, first, values + kPad);
    const bool has_left = kPad == 0 || place.group > 0;
    if (kPad && has_left) values[0] = x.template load<Wide>(first - 1);
#pragma unroll
    for (uint32_t j = 0; j < kResults; ++j)
#pragma unroll
      for (int b = 0; b < kKernel; ++b) {
        if (j == 0 && b == 0 && !has_left) continue;
        const Wide value = values[2 * j + b];
        if constexpr (kAverage) {
          results[j] += value;
        } else if (winners.values[j] == 0xff || formulas::pool_takes(value, results[j])) {
          results[j] = value, winners.values[j] = static_cast<uint8_t>(kKernel * a + b);
        }
      }
  }
  if constexpr (kAverage) average.template of<kResults>(results);
  store_some<Wide, kResults>(out, i * kResults, results);
  if (!kAverage && s.indices) winners.write(s.indices + i * kResults);
}

// The gradients of two rows: of the windows of a thread, and for 3 x 3 also of those below and of the next
// one in the row.
template <class Wide, int kKernel, bool kAverage, class Access>
__global__ void __launch_bounds__(kPoolRowThreads)
    pool_rows_backward(PoolRows s, Average<Wide> average, Access dy, Access dx) {
  constexpr uint32_t kResults = kPoolRowGradients<Access>, kColumns = 2 * kResults;
  constexpr int kWindows = kKernel - 1;  // in each direction, at most
  const uint32_t i = blockIdx.x * kPoolRowThreads + threadIdx.x;
  if (i >= s.threads) return;
  const PoolPlace place(s, i);
  const uint32_t width = s.width / 2, height = s.height / 2;
  Wide sums[2][kColumns] = {};
#pragma unroll
  for (int down = 0; down < kWindows; ++down) {
    if (place.y + down >= height) continue;
    const uint32_t first = i * kResults + down * width;
    Wide gradients[kResults + 1] = {};
    uint8_t winners[kResults + 1];
    load_some<Wide, kResults>(dy, first, gradients);
    if constexpr (!kAverage) {
      Neighbours<uint8_t, kResults> own;
      own.read(s.in_indices + first);
#pragma unroll
      for (uint32_t j = 0; j < kResults; ++j) winners[j] = own.values[j];
      winners[kResults] = 0xff;
    }
    if (kWindows == 2 && (place.group + 1) * kResults < width) {
      gradients[kResults] = dy.template load<Wide>(first + kResults);
      if constexpr (!kAverage) winners[kResults] = s.in_indices[first + kResults];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int a = r + kWindows - 1 - 2 * down;  // the row of the window
      if (a < 0) continue;
#pragma unroll
      for (uint32_t column = 0; column < kColumns; ++column)
#pragma unroll
        for (int right = 0; right < kWindows; ++right) {
          const int b = static_cast<int>(column % 2) + kWindows - 1 - 2 * right;
          if (b < 0) continue;
          const uint32_t j = column / 2 + right;
          if (kAverage || winners[j] == kKernel * a + b) sums[r][column] += gradients[j];
        }
    }
  }
  if constexpr (kAverage) average.template of<2 * kColumns>(&sums[0][0]);
#pragma unroll
  for (uint32_t r = 0; r < 2; ++r)
    store_some<Wide, kColumns>(dx, (place.plane * s.height + 2 * place.y + r) * s.width + place.group * kColumns,
                               sums[r]);
}

// Whether these kernels take it; then they run.
template <class Wide, bool kAverage, class Access>
bool start_pool_rows(cudaStream_t stream, const Image& in, const Image& result, const WindowArgs& w,
                     const Average<Wide>& average, const Access& x, const Access& out, uint8_t* indices) {
  constexpr uint32_t kResults = kPoolRowResults<Access>;
  const int kernel = pool_rows_kernel(in, result, w, kResults);
  if (kernel == 0 || !x.aligned || !out.aligned || reinterpret_cast<uintptr_t>(indices) % kResults != 0) return false;
  const PoolRows s{elements(result) / kResults, in.h,    in.w,   Divisor(result.w / kResults),
                   Divisor(result.h),           nullptr, indices};
  auto* run = kernel == 2 ? pool_rows<Wide, 2, kAverage, Access> : pool_rows<Wide, 3, kAverage, Access>;
  run<<<blocks_for(s.threads, kPoolRowThreads), kPoolRowThreads, 0, stream>>>(s, average, x, out);
  return true;
}
template <class Wide, bool kAverage, class Access>
bool start_pool_rows_backward(cudaStream_t stream, const Image& in, const Image& result, const WindowArgs& w,
                              const Average<Wide>& average, const Access& dy, const Access& dx,
                              const uint8_t* indices) {
  constexpr uint32_t kResults = kPoolRowGradients<Access>;
  const int kernel = pool_rows_kernel(in, result, w, kResults);
  if (kernel == 0 || !dy.aligned || !dx.aligned || reinterpret_cast<uintptr_t>(indices) % kResults != 0) return false;
  const PoolRows s{elements(result) / kResults, in.h,    in.w,   Divisor(result.w / kResults),
                   Divisor(result.h),           indices, nullptr};
  auto* run =
      kernel == 2 ? pool_rows_backward<Wide, 2, kAverage, Access> : pool_rows_backward<Wide, 3, kAverage, Access>;
  run<<<blocks_for(s.threads, kPoolRowThreads), kPoolRowThreads, 0, stream>>>(s, average, dy, dx);
  return true;
}

}  // namespace halfmark::kernels::cuda
