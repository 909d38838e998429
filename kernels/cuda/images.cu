// Pooling with one thread per output (backward gathers, so nothing is added in a random order), and layout conversion.
#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/images.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    max_pool(Image in, Image result, WindowArgs w, Access x, Access out, uint8_t* indices, bool indices_last) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(result)) return;
  const Place p = place_of(result, i);
  const int top = static_cast<int>(p.y) * w.stride_h - w.pad_h, left = static_cast<int>(p.x) * w.stride_w - w.pad_w;
  Wide best = 0;
  int winner = -1;
  for (int a = 0; a < w.kernel_h; ++a)
    for (int b = 0; b < w.kernel_w; ++b) {
      const int y = top + a, column = left + b;
      if (y < 0 || y >= static_cast<int>(in.h) || column < 0 || column >= static_cast<int>(in.w)) continue;
      const Wide value = x.template load<Wide>(offset(in, p.n, p.c, y, column));
      if (winner < 0 || formulas::pool_takes(value, best)) best = value, winner = w.kernel_w * a + b;
    }
  out.template store<Wide>(i, best);
  if (!indices) return;
  Image index_layout = result;
  index_layout.last = indices_last;
  indices[offset(index_layout, p.n, p.c, p.y, p.x)] = static_cast<uint8_t>(winner);
}

// The windows [first, last] that contain coordinate `at`.
__device__ __forceinline__ void windows_of(int at, int pad, int kernel, int stride, int count, int& first, int& last) {
  const int reach = at + pad - kernel + 1;
  first = reach > 0 ? (reach + stride - 1) / stride : 0;
  last = (at + pad) / stride;
  if (last >= count) last = count - 1;
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads) max_pool_backward(Image result, Image in, WindowArgs w, Access dy,
                                                              const uint8_t* indices, bool indices_last, Access dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(in)) return;
  const Place p = place_of(in, i);
  Image index_layout = result;
  index_layout.last = indices_last;
  int y0, y1, x0, x1;
  windows_of(p.y, w.pad_h, w.kernel_h, w.stride_h, result.h, y0, y1);
  windows_of(p.x, w.pad_w, w.kernel_w, w.stride_w, result.w, x0, x1);
  Wide sum = 0;
  for (int y = y0; y <= y1; ++y)
    for (int x = x0; x <= x1; ++x) {
      const int a = static_cast<int>(p.y) + w.pad_h - y * w.stride_h,
                b = static_cast<int>(p.x) + w.pad_w - x * w.stride_w;
      if (indices[offset(index_layout, p.n, p.c, y, x)] != w.kernel_w * a + b) continue;
      sum += dy.template load<Wide>(offset(result, p.n, p.c, y, x));
    }
  dx.template store<Wide>(i, sum);
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads) avg_pool(Image in, Image result, WindowArgs w, Access x, Access out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(result)) return;
  const Place p = place_of(result, i);
  const int top = static_cast<int>(p.y) * w.stride_h - w.pad_h, left = static_cast<int>(p.x) * w.stride_w - w.pad_w;
  Wide sum = 0;
  for (int a = 0; a < w.kernel_h; ++a)
    for (int b = 0; b < w.kernel_w; ++b) {
      const int y = top + a, column = left + b;
      if (y < 0 || y >= static_cast<int>(in.h) || column < 0 || column >= static_cast<int>(in.w)) continue;
      sum += x.template load<Wide>(offset(in, p.n, p.c, y, column));
    }
  out.template store<Wide>(i, sum / static_cast<Wide>(w.kernel_h * w.kernel_w));
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    avg_pool_backward(Image result, Image in, WindowArgs w, Access dy, Access dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(in)) return;
  const Place p = place_of(in, i);
  int y0, y1, x0, x1;
  windows_of(p.y, w.pad_h, w.kernel_h, w.stride_h, result.h, y0, y1);
  windows_of(p.x, w.pad_w, w.kernel_w, w.stride_w, result.w, x0, x1);
  Wide sum = 0;
  for (int y = y0; y <= y1; ++y)
    for (int x = x0; x <= x1; ++x) sum += dy.template load<Wide>(offset(result, p.n, p.c, y, x));
  dx.template store<Wide>(i, sum / static_cast<Wide>(w.kernel_h * w.kernel_w));
}

constexpr uint32_t kTile = 32, kTileThreads = 8;

// [outer][rows][columns] to [outer][columns][rows] through a
// tile in shared memory; the extra column avoids bank conflicts.
template <class T>
__global__ void __launch_bounds__(kTile* kTileThreads) transpose(uint32_t rows, uint32_t columns, const T* x, T* out) {
  __shared__ T tile[kTile][kTile + 1];
  const uint32_t wide = (columns + kTile - 1) / kTile, high = (rows + kTile - 1) / kTile;
  const uint32_t column0 = blockIdx.x % wide * kTile, row0 = blockIdx.x / wide % high * kTile,
                 image = blockIdx.x / wide / high;
  const uint32_t start = image * rows * columns, lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  for (uint32_t r = line; r < kTile; r += kTileThreads)
    if (row0 + r < rows && column0 + lane < columns) tile[r][lane] = x[start + (row0 + r) * columns + column0 + lane];
  __syncthreads();
  for (uint32_t r = line; r < kTile; r += kTileThreads)
    if (column0 + r < columns && row0 + lane < rows) out[start + (column0 + r) * rows + row0 + lane] = tile[lane][r];
}

template <class T>
void start_transpose(cudaStream_t stream, uint32_t outer, uint32_t rows, uint32_t columns, const void* x, void* out) {
  const uint32_t blocks = outer * blocks_for(rows, kTile) * blocks_for(columns, kTile);
  transpose<T>
      <<<blocks, kTile * kTileThreads, 0, stream>>>(rows, columns, static_cast<const T*>(x), static_cast<T*>(out));
}

}  // namespace

void launch_max_pool(cudaStream_t stream, const Image& x, const Image& out, const WindowArgs& w, Array x_data,
                     Array out_data, uint8_t* indices, bool indices_last) {
  with_access({x_data.dtype, out_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    max_pool<Wide><<<blocks_for(elements(out), kThreads), kThreads, 0, stream>>>(
        x, out, w, Access(x_data), Access(out_data), indices, indices_last);
  });
  launched("max_pool2d");
}

void launch_max_pool_backward(cudaStream_t stream, const Image& dy, const Image& dx, const WindowArgs& w, Array dy_data,
                              const uint8_t* indices, bool indices_last, Array dx_data) {
  with_access({dy_data.dtype, dx_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    max_pool_backward<Wide><<<blocks_for(elements(dx), kThreads), kThreads, 0, stream>>>(
        dy, dx, w, Access(dy_data), indices, indices_last, Access(dx_data));
  });
  launched("max_pool2d_backward");
}

void launch_avg_pool(cudaStream_t stream, const Image& x, const Image& out, const WindowArgs& w, Array x_data,
                     Array out_data) {
  with_access({x_data.dtype, out_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    avg_pool<Wide>
        <<<blocks_for(elements(out), kThreads), kThreads, 0, stream>>>(x, out, w, Access(x_data), Access(out_data));
  });
  launched("avg_pool2d");
}

void launch_avg_pool_backward(cudaStream_t stream, const Image& dy, const Image& dx, const WindowArgs& w, Array dy_data,
                              Array dx_data) {
  with_access({dy_data.dtype, dx_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    avg_pool_backward<Wide>
        <<<blocks_for(elements(dx), kThreads), kThreads, 0, stream>>>(dy, dx, w, Access(dy_data), Access(dx_data));
  });
  launched("avg_pool2d_backward");
}

void launch_reorder(cudaStream_t stream, uint32_t outer, uint32_t channels, uint32_t pixels, size_t size, bool to_last,
                    const void* x, void* out) {
  const uint32_t rows = to_last ? channels : pixels, columns = to_last ? pixels : channels;
  switch (size) {
    case 1:
      start_transpose<uint8_t>(stream, outer, rows, columns, x, out);
      break;
    case 2:
      start_transpose<uint16_t>(stream, outer, rows, columns, x, out);
      break;
    case 4:
      start_transpose<uint32_t>(stream, outer, rows, columns, x, out);
      break;
    case 8:
      start_transpose<uint64_t>(stream, outer, rows, columns, x, out);
      break;
    default:
      throw Error("no reorder kernel for elements of " + std::to_string(size) + " bytes");
  }
  launched("reorder");
}

}  // namespace halfmark::kernels::cuda
