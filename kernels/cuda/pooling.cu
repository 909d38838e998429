// Pooling. A thread has one element of the result, or neighbouring channels of one pixel where they are one access; the
// gradients of windows that are two apart are computed for two rows and two columns at once. Backward gathers, so nothing
// is added in a random order.
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/pixels.cuh"
#include "kernels/cuda/pool_average.cuh"
#include "kernels/cuda/pool_rows.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// f(number in the window, values) for what a window has inside of the image, in order.
template <class Wide, uint32_t kCount, class Access, class F>
__device__ __forceinline__ void each_in_window(const Image& in, const WindowArgs& w, const Access& x, const Place& p,
                                               F f) {
  const Steps steps(in, p);
  const int height = static_cast<int>(in.h), width = static_cast<int>(in.w);
  const int top = static_cast<int>(p.y) * w.stride_h - w.pad_h, left = static_cast<int>(p.x) * w.stride_w - w.pad_w;
  if constexpr (kCount == 1 && Access::kFours) {
    if (w.kernel_h <= 3 && w.kernel_w <= 3) {  // all are read before one is used
      Wide values[3][3];
      bool inside[3][3];
#pragma unroll
      for (int a = 0; a < 3; ++a)
#pragma unroll
        for (int b = 0; b < 3; ++b) {
          const int y = top + a, column = left + b;
          inside[a][b] = a < w.kernel_h && b < w.kernel_w && y >= 0 && y < height && column >= 0 && column < width;
          if (inside[a][b]) values[a][b] = x.template load<Wide>(steps.at(y, column));
        }
#pragma unroll
      for (int a = 0; a < 3; ++a)
#pragma unroll
        for (int b = 0; b < 3; ++b)
          if (inside[a][b]) f(w.kernel_w * a + b, &values[a][b]);
      return;
    }
  }
  const int y0 = max(top, 0), y1 = min(top + w.kernel_h, height), x0 = max(left, 0), x1 = min(left + w.kernel_w, width);
  for (int y = y0; y < y1; ++y)
    for (int column = x0; column < x1; ++column) {
      Wide values[kCount];
      load_some<Wide, kCount>(x, steps.at(y, column), values);
      f(w.kernel_w * (y - top) + column - left, values);
    }
}

template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kThreads) max_pool(Walk walk, Image in, Image result, WindowArgs w, Access x,
                                                     Access out, uint8_t* indices, bool indices_last) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  Wide best[kCount] = {};
  uint8_t winner[kCount];
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) winner[k] = 0xff;
  bool any = false;
  each_in_window<Wide, kCount>(in, w, x, p, [&](int number, const Wide* values) {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k)
      if (!any || formulas::pool_takes(values[k], best[k]))
        best[k] = values[k], winner[k] = static_cast<uint8_t>(number);
    any = true;
  });
  store_some<Wide, kCount>(out, i * kCount, best);
  if (!indices) return;
  result.last = indices_last;
  uint8_t* to = indices + offset(result, p.n, p.c, p.y, p.x);
  if constexpr (kCount == 1) {
    to[0] = winner[0];
  } else {
    Neighbours<uint8_t, kCount> all;
    memcpy(all.values, winner, kCount);
    all.write(to);
  }
}

template <class Wide, uint32_t kCount, class Access>
__global__ void __launch_bounds__(kThreads)
    avg_pool(Walk walk, Image in, WindowArgs w, Average<Wide> average, Access x, Access out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  Wide sums[kCount] = {};
  each_in_window<Wide, kCount>(in, w, x, walk.place(i), [&](int, const Wide* values) {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) sums[k] += values[k];
  });
  average.template of<kCount>(sums);
  store_some<Wide, kCount>(out, i * kCount, sums);
}

// The gradients of one pooling. Without indices it is the average, whose gradient is the sum over the windows divided.
struct Gradients {
  Image result, in;  // of dy, of dx
  WindowArgs w;
  const uint8_t* indices;
  bool indices_last;
};

template <uint32_t kCount>
__device__ __forceinline__ void read_winners(const Gradients& s, const Steps& steps, int y, int x, uint32_t* winners) {
  const uint8_t* from = s.indices + steps.at(y, x);
  if constexpr (kCount == 1) {
    winners[0] = from[0];
  } else {
    Neighbours<uint8_t, kCount> all;
    all.read(from);
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) winners[k] = all.values[k];
  }
}
template <class Wide, uint32_t kCount>
__device__ __forceinline__ void add_won(bool average, const Wide* gradients, const uint32_t* winners, int number,
                                        Wide* sums) {
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k)
    if (average || winners[k] == static_cast<uint32_t>(number)) sums[k] += gradients[k];
}
__device__ __forceinline__ Steps steps_of_indices(const Gradients& s, const Place& p) {
  Image image = s.result;
  image.last = s.indices_last;
  return Steps(image, p);
}

// The windows [first, last] that contain coordinate `at`.
__device__ __forceinline__ void windows_of(uint32_t at, int pad, int kernel, const Divisor& stride, uint32_t count,
                                           int& first, int& last) {
  const int reach = static_cast<int>(at) + pad - kernel + 1;
  first = reach > 0 ? static_cast<int>(stride.quotient(static_cast<uint32_t>(reach) + stride.divisor - 1)) : 0;
  last = static_cast<int>(min(stride.quotient(at + static_cast<uint32_t>(pad)), count - 1));
}

template <class Wide, uint32_t kCount, bool kAverage, class Access>
__global__ void __launch_bounds__(kThreads) pool_backward(Walk walk, Gradients s, Divisor stride_h, Divisor stride_w,
                                                          Average<Wide> average, Access dy, Access dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const Steps of_dy(s.result, p), of_indices = steps_of_indices(s, p);
  int y0, y1, x0, x1;
  windows_of(p.y, s.w.pad_h, s.w.kernel_h, stride_h, s.result.h, y0, y1);
  windows_of(p.x, s.w.pad_w, s.w.kernel_w, stride_w, s.result.w, x0, x1);
  Wide sums[kCount] = {};
  for (int y = y0; y <= y1; ++y)
    for (int x = x0; x <= x1; ++x) {
      const int a = static_cast<int>(p.y) + s.w.pad_h - y * s.w.stride_h,
                b = static_cast<int>(p.x) + s.w.pad_w - x * s.w.stride_w;
      Wide gradients[kCount];
      uint32_t winners[kCount] = {};
      load_some<Wide, kCount>(dy, of_dy.at(y, x), gradients);
      if constexpr (!kAverage) read_winners<kCount>(s, of_indices, y, x, winners);
      add_won<Wide, kCount>(kAverage, gradients, winners, s.w.kernel_w * a + b, sums);
    }
  if constexpr (kAverage) average.template of<kCount>(sums);
  store_some<Wide, kCount>(dx, i * kCount, sums);
}

// Strides of two and windows of two to four: a thread has the two rows and columns of dx that window (y, x) has last. They
// are in that window and in the next ones.
struct Squares {
  int first_y, first_x;  // of the first thread
  Image image;           // of the threads
  static int first(int pad, int kernel) {
    const int twice = pad - kernel + 1;  // rounded up
    return twice > 0 ? (twice + 1) / 2 : -(-twice / 2);
  }
  static uint32_t count(uint32_t size, int pad, int kernel) {
    return static_cast<uint32_t>((static_cast<int>(size) + 1 + pad - kernel) / 2 - first(pad, kernel) + 1);
  }
  Squares(const Image& in, const WindowArgs& w)
      : first_y(first(w.pad_h, w.kernel_h)),
        first_x(first(w.pad_w, w.kernel_w)),
        image{in.n, in.c, count(in.h, w.pad_h, w.kernel_h), count(in.w, w.pad_w, w.kernel_w), in.last} {}
  static bool fit(const Image& in, const WindowArgs& w) {
    const auto one = [](uint32_t size, int kernel, int stride, int pad) {
      return stride == 2 && kernel >= 2 && kernel <= 4 && static_cast<int>(size) + 1 + pad >= kernel;
    };
    return one(in.h, w.kernel_h, w.stride_h, w.pad_h) && one(in.w, w.kernel_w, w.stride_w, w.pad_w);
  }
};

template <class Wide, uint32_t kCount, bool kAverage, class Access>
__global__ void __launch_bounds__(kThreads) pool_backward_squares(Walk walk, Gradients s, int first_y, int first_x,
                                                                  Average<Wide> average, Access dy, Access dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= walk.threads) return;
  const Place p = walk.place(i);
  const int y = static_cast<int>(p.y) + first_y, x = static_cast<int>(p.x) + first_x;
  const Steps of_dy(s.result, p), of_indices = steps_of_indices(s, p), of_dx(s.in, p);
  Wide sums[2][2][kCount] = {};
#pragma unroll
  for (int down = 0; down < 2; ++down)
#pragma unroll
    for (int right = 0; right < 2; ++right) {
      if ((down == 1 && s.w.kernel_h == 2) || (right == 1 && s.w.kernel_w == 2)) continue;
      if (y + down < 0 || y + down >= static_cast<int>(s.result.h) || x + right < 0 ||
          x + right >= static_cast<int>(s.result.w))
        continue;
      Wide gradients[kCount];
      uint32_t winners[kCount] = {};
      load_some<Wide, kCount>(dy, of_dy.at(y + down, x + right), gradients);
      if constexpr (!kAverage) read_winners<kCount>(s, of_indices, y + down, x + right, winners);
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          const int a = s.w.kernel_h - 2 + r - 2 * down, b = s.w.kernel_w - 2 + q - 2 * right;
          if (a >= 0 && b >= 0) add_won<Wide, kCount>(kAverage, gradients, winners, s.w.kernel_w * a + b, sums[r][q]);
        }
    }
  if constexpr (kAverage) average.template of<4 * kCount>(&sums[0][0][0]);
  const int row = 2 * y - s.w.pad_h + s.w.kernel_h - 2, column = 2 * x - s.w.pad_w + s.w.kernel_w - 2;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int q = 0; q < 2; ++q)
      if (row + r >= 0 && row + r < static_cast<int>(s.in.h) && column + q >= 0 &&
          column + q < static_cast<int>(s.in.w))
        store_some<Wide, kCount>(dx, of_dx.at(row + r, column + q), sums[r][q]);
}

// f(number of channels that a thread takes).
template <class Access, class F>
void with_channels(const Image& one, const Image& other, const uint8_t* indices, bool indices_last, const Access& a,
                   const Access& b, F&& f) {
  constexpr uint32_t kMost = most_channels<Access>();
  if (indices && (!indices_last || reinterpret_cast<uintptr_t>(indices) % kMost != 0))
    return f(std::integral_constant<uint32_t, 1>{});
  with_channels(one, other, a, b, std::forward<F>(f));
}

template <bool kAverage>
void start_backward(cudaStream_t stream, const Gradients& s, Array dy_data, Array dx_data) {
  with_access({dy_data.dtype, dx_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access dy(dy_data), dx(dx_data);
    const Average<Wide> average(s.w);
    if constexpr (0 < kPoolRowGradients<Access>)
      if (!s.indices_last &&
          start_pool_rows_backward<Wide, kAverage>(stream, s.in, s.result, s.w, average, dy, dx, s.indices))
        return;
    with_channels(s.result, s.in, s.indices, s.indices_last, dy, dx, [&](auto channels) {
      constexpr uint32_t kCount = decltype(channels)::value;
      if constexpr (Access::kFours)
        if (Squares::fit(s.in, s.w)) {
          const Squares squares(s.in, s.w);
          const Walk walk(squares.image, kCount);
          pool_backward_squares<Wide, kCount, kAverage><<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(
              walk, s, squares.first_y, squares.first_x, average, dy, dx);
          return;
        }
      const Walk walk(s.in, kCount);
      pool_backward<Wide, kCount, kAverage><<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(
          walk, s, Divisor(static_cast<uint32_t>(s.w.stride_h)), Divisor(static_cast<uint32_t>(s.w.stride_w)), average,
          dy, dx);
    });
  });
}

}  // namespace

void launch_max_pool(cudaStream_t stream, const Image& x, const Image& out, const WindowArgs& w, Array x_data,
                     Array out_data, uint8_t* indices, bool indices_last) {
  with_access({x_data.dtype, out_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access from(x_data), to(out_data);
    if constexpr (0 < kPoolRowResults<Access>)
      if (!indices_last && start_pool_rows<Wide, false>(stream, x, out, w, Average<Wide>(w), from, to, indices)) return;
    with_channels(x, out, indices, indices_last, from, to, [&](auto channels) {
      constexpr uint32_t kCount = decltype(channels)::value;
      const Walk walk(out, kCount);
      max_pool<Wide, kCount><<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(walk, x, out, w, from, to,
                                                                                          indices, indices_last);
    });
  });
  launched("max_pool2d");
}

void launch_max_pool_backward(cudaStream_t stream, const Image& dy, const Image& dx, const WindowArgs& w, Array dy_data,
                              const uint8_t* indices, bool indices_last, Array dx_data) {
  start_backward<false>(stream, {dy, dx, w, indices, indices_last}, dy_data, dx_data);
  launched("max_pool2d_backward");
}

void launch_avg_pool(cudaStream_t stream, const Image& x, const Image& out, const WindowArgs& w, Array x_data,
                     Array out_data) {
  with_access({x_data.dtype, out_data.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access from(x_data), to(out_data);
    if constexpr (0 < kPoolRowResults<Access>)
      if (start_pool_rows<Wide, true>(stream, x, out, w, Average<Wide>(w), from, to, nullptr)) return;
    with_channels(x, out, nullptr, false, from, to, [&](auto channels) {
      constexpr uint32_t kCount = decltype(channels)::value;
      const Walk walk(out, kCount);
      avg_pool<Wide, kCount>
          <<<blocks_for(walk.threads, kThreads), kThreads, 0, stream>>>(walk, x, w, Average<Wide>(w), from, to);
    });
  });
  launched("avg_pool2d");
}

void launch_avg_pool_backward(cudaStream_t stream, const Image& dy, const Image& dx, const WindowArgs& w, Array dy_data,
                              Array dx_data) {
  start_backward<true>(stream, {dy, dx, w, nullptr, false}, dy_data, dx_data);
  launched("avg_pool2d_backward");
}

}  // namespace halfmark::kernels::cuda
