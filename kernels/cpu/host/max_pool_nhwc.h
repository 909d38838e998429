// Max pooling of images in nhwc: the maxima of a block of channels stay in registers over a whole window, and so do the
// gradients of a pixel over all windows that reach it. No pass looks for NaN first, which oneDNN's row needs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::host {

// The part of the window of result y that is inside the image: first and last + 1 place in the window, and the image
// row of place 0.
struct Span {
  int64_t first, last, origin;
  Span(int64_t y, int stride, int pad, int kernel, int64_t extent)
      : first(std::max<int64_t>(0, pad - y * stride)),
        last(std::min<int64_t>(kernel, extent + pad - y * stride)),
        origin(y * stride - pad) {}
};

// The results y whose windows reach row (or column) `place` of the image, in order: first ... last.
struct Windows {
  int64_t first, last;
  Windows(int64_t place, int stride, int pad, int kernel, int64_t results)
      : first(std::max<int64_t>(0, (place + pad - kernel + stride) / stride)),
        last(std::min<int64_t>(results, (place + pad) / stride + 1)) {
    if (place + pad - kernel + 1 <= 0) first = 0;
  }
};

// f(n, y) for every row of an nhwc image, in parallel.
template <class F>
void each_image_row(const Shape& s, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(s[3] * s[1], 1));
  parallel_for(s[0] * s[2], grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / s[2], i % s[2]);
  });
}

namespace max_pool_detail {

inline double number_of(double value) { return value; }
inline float number_of(float value) { return value; }
inline float number_of(uint16_t code) { return bf16_value(code); }
inline void store(double value, double& to) { to = value; }
inline void store(float value, float& to) { to = value; }
inline void store(float value, uint16_t& to) { to = bf16_code(value); }

template <class S>
using Computed = decltype(number_of(S{}));

// `lanes` channels of one result: x points to them in place 0 of the window.
template <int64_t lanes, class S>
void maximum(const S* x, int64_t row, int64_t pixel, const Span& rows, const Span& columns, int kernel_w, S* out,
             uint8_t* places) {
  Computed<S> best[lanes];
  int32_t winner[lanes];
  const S* first = x + rows.first * row + columns.first * pixel;
  for (int64_t c = 0; c < lanes; ++c) best[c] = number_of(first[c]);
  for (int64_t c = 0; c < lanes; ++c) winner[c] = static_cast<int32_t>(rows.first * kernel_w + columns.first);
  for (int64_t i = rows.first; i < rows.last; ++i)
    for (int64_t j = columns.first; j < columns.last; ++j) {
      const S* value = x + i * row + j * pixel;
      const auto place = static_cast<int32_t>(i * kernel_w + j);
      for (int64_t c = 0; c < lanes; ++c) {
        const Computed<S> one = number_of(value[c]);
        const bool takes = formulas::pool_takes(one, best[c]);
        best[c] = takes ? one : best[c], winner[c] = takes ? place : winner[c];
      }
    }
  for (int64_t c = 0; c < lanes; ++c) store(best[c], out[c]);
  if (places)
    for (int64_t c = 0; c < lanes; ++c) places[c] = static_cast<uint8_t>(winner[c]);
}

// The windows that reach a row or a column of the image: the results, and the place of the first of them in its window,
// from which each further result is `stride` places away.
struct Reach {
  Windows results;
  int64_t place;
  int stride;
  Reach(int64_t at, int by, int pad, int kernel, int64_t count)
      : results(at, by, pad, kernel, count), place(at + pad - results.first * by), stride(by) {}
};

// `lanes` channels of the gradient of one pixel: dy and places point to them in the first result of the image.
template <int64_t lanes, class S>
void gradient(const S* dy, const uint8_t* places, int64_t row, int64_t pixel, const Reach& rows, const Reach& columns,
              int kernel_w, S* dx) {
  Computed<S> sum[lanes] = {};
  int64_t i = rows.place;
  for (int64_t y = rows.results.first; y < rows.results.last; ++y, i -= rows.stride) {
    int64_t j = columns.place;
    for (int64_t z = columns.results.first; z < columns.results.last; ++z, j -= columns.stride) {
      const S* slope = dy + y * row + z * pixel;
      const uint8_t* winner = places + y * row + z * pixel;
      const auto own = static_cast<int32_t>(i * kernel_w + j);
      for (int64_t c = 0; c < lanes; ++c) sum[c] += int32_t{winner[c]} == own ? number_of(slope[c]) : Computed<S>(0);
    }
  }
  for (int64_t c = 0; c < lanes; ++c) store(sum[c], dx[c]);
}

// f.template operator()<lanes>(first channel) for all channels.
template <class F>
void each_block(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + 32 <= channels; c += 32) f.template operator()<32>(c);
  for (; c + 16 <= channels; c += 16) f.template operator()<16>(c);
  for (; c + 4 <= channels; c += 4) f.template operator()<4>(c);
  for (; c < channels; ++c) f.template operator()<1>(c);
}

}  // namespace max_pool_detail

// x and out stored as S; `indices` may be null.
template <class S>
void max_pool_nhwc(const MaxPool2d& op, const Tensor& x, Tensor& out, Tensor* indices) {
  const Shape &xs = x.shape(), &ys = out.shape();
  const int64_t channels = xs[1], row = xs[3] * channels;
  const auto* source = static_cast<const S*>(x.data());
  auto* target = static_cast<S*>(out.data());
  auto* places = indices ? indices->as<uint8_t>() : nullptr;
  each_image_row(ys, [&](int64_t n, int64_t y) {
    const Span rows(y, op.window.stride_h, op.window.pad_h, op.kernel_h, xs[2]);
    for (int64_t z = 0; z < ys[3]; ++z) {
      const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
      const S* origin = source + (n * xs[2] + rows.origin) * row + columns.origin * channels;
      const int64_t to = ((n * ys[2] + y) * ys[3] + z) * channels;
      max_pool_detail::each_block(channels, [&]<int64_t lanes>(int64_t c) {
        max_pool_detail::maximum<lanes>(origin + c, row, channels, rows, columns, op.kernel_w, target + to + c,
                                        places ? places + to + c : nullptr);
      });
    }
  });
}

// dy and dx stored as S.
template <class S>
void max_pool_backward_nhwc(const MaxPool2dBackward& op, const Tensor& dy, const Tensor& indices, Tensor& dx) {
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const int64_t channels = xs[1], row = ys[3] * channels;
  const auto* source = static_cast<const S*>(dy.data());
  const auto* places = indices.as<uint8_t>();
  auto* target = static_cast<S*>(dx.data());
  each_image_row(xs, [&](int64_t n, int64_t h) {
    const max_pool_detail::Reach rows(h, op.window.stride_h, op.window.pad_h, op.kernel_h, ys[2]);
    for (int64_t w = 0; w < xs[3]; ++w) {
      const max_pool_detail::Reach columns(w, op.window.stride_w, op.window.pad_w, op.kernel_w, ys[3]);
      const int64_t image = n * ys[2] * row, to = ((n * xs[2] + h) * xs[3] + w) * channels;
      max_pool_detail::each_block(channels, [&]<int64_t lanes>(int64_t c) {
        max_pool_detail::gradient<lanes>(source + image + c, places + image + c, row, channels, rows, columns,
                                         op.kernel_w, target + to + c);
      });
    }
  });
}

}  // namespace halfmark::kernels::host
