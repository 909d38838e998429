// Pooling as host loops, for what oneDNN does not support: fp64, fp16, windows with a NaN.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/cpu/host/max_pool_nhwc.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {
namespace {

// Offset of element (n, c, y, x) of an image.
struct Strides {
  int64_t n, c, h, w;
  explicit Strides(const Tensor& t) {
    const Shape& s = t.shape();
    if (t.layout() == Layout::nhwc)
      n = s[1] * s[2] * s[3], c = 1, h = s[3] * s[1], w = s[1];
    else
      n = s[1] * s[2] * s[3], c = s[2] * s[3], h = s[3], w = 1;
  }
};

// f(n, c) for every plane of an image, in parallel.
template <class F>
void each_plane(const Shape& s, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(s[2] * s[3], 1));
  parallel_for(s[0] * s[1], grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / s[1], i % s[1]);
  });
}

// The same for nhwc, with the channels of a pixel in the innermost loop. Every element is summed in the same order as
// for plain images.

// Rows of an nhwc image, widened.
template <class T>
struct ImageRow {
  const Tensor& image;
  int64_t length;
  std::vector<T> wide;
  explicit ImageRow(const Tensor& x)
      : image(x),
        length(x.shape()[3] * x.shape()[1]),
        wide(static_cast<size_t>(x.dtype() == kStored<T> ? 0 : length)) {}
  const T* at(int64_t n, int64_t y) { return read(image, (n * image.shape()[2] + y) * length, length, wide.data()); }
};

// dx row by row: add(i, j, y, z, channels of dx, channels of dy) for every window that reaches a pixel.
template <class T, class Op, class Add>
void pool_backward_nhwc(const Op& op, const Tensor& dy, Tensor& dx, Add add) {
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const int64_t channels = xs[1], length = xs[3] * channels;
  each_image_row(xs, [&](int64_t n, int64_t h) {
    ImageRow<T> source(dy);
    std::vector<T> result(static_cast<size_t>(length));
    T* const row = writable(dx, (n * xs[2] + h) * length, result.data());
    std::fill_n(row, length, T(0));
    const Windows windows(h, op.window.stride_h, op.window.pad_h, op.kernel_h, ys[2]);
    for (int64_t y = windows.first; y < windows.last; ++y) {
      const int64_t i = h - (y * op.window.stride_h - op.window.pad_h);
      const T* slope = source.at(n, y);
      for (int64_t z = 0; z < ys[3]; ++z) {
        const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
        for (int64_t j = columns.first; j < columns.last; ++j)
          add(i * op.kernel_w + j, ((n * ys[2] + y) * ys[3] + z) * channels, channels,
              row + (columns.origin + j) * channels, slope + z * channels);
      }
    }
    written(dx, (n * xs[2] + h) * length, length, row);
  });
}

template <class T>
void average_pool_nhwc(const AvgPool2d& op, const Tensor& x, Tensor& out) {
  const Shape &xs = x.shape(), &ys = out.shape();
  const int64_t channels = xs[1], length = ys[3] * channels;
  const T count = static_cast<T>(op.kernel_h * op.kernel_w);
  each_image_row(ys, [&](int64_t n, int64_t y) {
    ImageRow<T> source(x);
    std::vector<T> result(static_cast<size_t>(length));
    T* const sums = writable(out, (n * ys[2] + y) * length, result.data());
    std::fill_n(sums, length, T(0));
    const Span rows(y, op.window.stride_h, op.window.pad_h, op.kernel_h, xs[2]);
    for (int64_t i = rows.first; i < rows.last; ++i) {
      const T* row = source.at(n, rows.origin + i);
      for (int64_t z = 0; z < ys[3]; ++z) {
        const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
        T* sum = sums + z * channels;
        for (int64_t j = columns.first; j < columns.last; ++j) {
          const T* value = row + (columns.origin + j) * channels;
          HM_EACH_FOR_ITSELF
          for (int64_t c = 0; c < channels; ++c) sum[c] += value[c];
        }
      }
    }
    HM_EACH_FOR_ITSELF
    for (int64_t k = 0; k < length; ++k) sums[k] /= count;
    written(out, (n * ys[2] + y) * length, length, sums);
  });
}

template <class T>
void average_pool_backward_nhwc(const AvgPool2dBackward& op, const Tensor& dy, Tensor& dx) {
  const T count = static_cast<T>(op.kernel_h * op.kernel_w);
  pool_backward_nhwc<T>(op, dy, dx, [count](int64_t, int64_t, int64_t channels, T* to, const T* from) {
    HM_EACH_FOR_ITSELF
    for (int64_t c = 0; c < channels; ++c) to[c] += from[c] / count;
  });
}

// The tensor itself, or a copy of this dtype.
Tensor stored_as(DType dtype, const Tensor& tensor) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor copy = scratch_like(tensor, dtype);
  run(Cast{tensor, copy});
  return copy;
}

template <class T>
void max_pool(const MaxPool2d& op, const Tensor& x, Tensor& out, Tensor* indices) {
  if (x.layout() == Layout::nhwc && out.layout() == Layout::nhwc) {
    if (x.dtype() == DType::bf16 && out.dtype() == DType::bf16) return max_pool_nhwc<uint16_t>(op, x, out, indices);
    const Tensor wide = stored_as(kStored<T>, x);
    if (out.dtype() == kStored<T>) return max_pool_nhwc<T>(op, wide, out, indices);
    Tensor result = scratch_like(out, kStored<T>);
    max_pool_nhwc<T>(op, wide, result, indices);
    return run(Cast{result, out});
  }
  const Strides sx(x), sy(out);
  const Shape &xs = x.shape(), &ys = out.shape();
  const std::vector<T> source = widened<T>(x);
  std::vector<T> result(static_cast<size_t>(out.elements()));
  each_plane(ys, [&](int64_t n, int64_t c) {
    const T* plane = source.data() + n * sx.n + c * sx.c;
    for (int64_t y = 0; y < ys[2]; ++y) {
      const Span rows(y, op.window.stride_h, op.window.pad_h, op.kernel_h, xs[2]);
      for (int64_t z = 0; z < ys[3]; ++z) {
        const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
        int64_t winner = rows.first * op.kernel_w + columns.first;
        T best = plane[(rows.origin + rows.first) * sx.h + (columns.origin + columns.first) * sx.w];
        for (int64_t i = rows.first; i < rows.last; ++i)
          for (int64_t j = columns.first; j < columns.last; ++j) {
            const T value = plane[(rows.origin + i) * sx.h + (columns.origin + j) * sx.w];
            if (formulas::pool_takes(value, best)) best = value, winner = i * op.kernel_w + j;
          }
        const int64_t place = n * sy.n + c * sy.c + y * sy.h + z * sy.w;
        result[static_cast<size_t>(place)] = best;
        if (indices) indices->as<uint8_t>()[place] = static_cast<uint8_t>(winner);
      }
    }
  });
  convert(kStored<T>, result.data(), out.dtype(), out.data(), result.size());
}

template <class T>
void max_pool_backward(const MaxPool2dBackward& op, const Tensor& dy, const Tensor& indices, Tensor& dx) {
  if (dx.layout() == Layout::nhwc && dy.layout() == Layout::nhwc) {
    if (dx.dtype() == DType::bf16 && dy.dtype() == DType::bf16)
      return max_pool_backward_nhwc<uint16_t>(op, dy, indices, dx);
    const Tensor wide = stored_as(kStored<T>, dy);
    if (dx.dtype() == kStored<T>) return max_pool_backward_nhwc<T>(op, wide, indices, dx);
    Tensor result = scratch_like(dx, kStored<T>);
    max_pool_backward_nhwc<T>(op, wide, indices, result);
    return run(Cast{result, dx});
  }
  const Strides sx(dx), sy(dy);
  const Shape& ys = dy.shape();
  const std::vector<T> source = widened<T>(dy);
  const auto* winners = indices.as<uint8_t>();
  std::vector<T> result(static_cast<size_t>(dx.elements()), T(0));
  each_plane(dx.shape(), [&](int64_t n, int64_t c) {
    for (int64_t y = 0; y < ys[2]; ++y)
      for (int64_t z = 0; z < ys[3]; ++z) {
        const int64_t place = n * sy.n + c * sy.c + y * sy.h + z * sy.w;
        const int64_t row = y * op.window.stride_h - op.window.pad_h + winners[place] / op.kernel_w;
        const int64_t column = z * op.window.stride_w - op.window.pad_w + winners[place] % op.kernel_w;
        result[static_cast<size_t>(n * sx.n + c * sx.c + row * sx.h + column * sx.w)] +=
            source[static_cast<size_t>(place)];
      }
  });
  convert(kStored<T>, result.data(), dx.dtype(), dx.data(), result.size());
}

template <class T>
void average_pool(const AvgPool2d& op, const Tensor& x, Tensor& out) {
  if (x.layout() == Layout::nhwc && out.layout() == Layout::nhwc) return average_pool_nhwc<T>(op, x, out);
  const Strides sx(x), sy(out);
  const Shape &xs = x.shape(), &ys = out.shape();
  const std::vector<T> source = widened<T>(x);
  std::vector<T> result(static_cast<size_t>(out.elements()));
  const T count = static_cast<T>(op.kernel_h * op.kernel_w);
  each_plane(ys, [&](int64_t n, int64_t c) {
    const T* plane = source.data() + n * sx.n + c * sx.c;
    for (int64_t y = 0; y < ys[2]; ++y) {
      const Span rows(y, op.window.stride_h, op.window.pad_h, op.kernel_h, xs[2]);
      for (int64_t z = 0; z < ys[3]; ++z) {
        const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
        T sum = 0;
        for (int64_t i = rows.first; i < rows.last; ++i)
          for (int64_t j = columns.first; j < columns.last; ++j)
            sum += plane[(rows.origin + i) * sx.h + (columns.origin + j) * sx.w];
        result[static_cast<size_t>(n * sy.n + c * sy.c + y * sy.h + z * sy.w)] = sum / count;
      }
    }
  });
  convert(kStored<T>, result.data(), out.dtype(), out.data(), result.size());
}

template <class T>
void average_pool_backward(const AvgPool2dBackward& op, const Tensor& dy, Tensor& dx) {
  if (dx.layout() == Layout::nhwc && dy.layout() == Layout::nhwc) return average_pool_backward_nhwc<T>(op, dy, dx);
  const Strides sx(dx), sy(dy);
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const std::vector<T> source = widened<T>(dy);
  std::vector<T> result(static_cast<size_t>(dx.elements()), T(0));
  const T count = static_cast<T>(op.kernel_h * op.kernel_w);
  each_plane(xs, [&](int64_t n, int64_t c) {
    T* plane = result.data() + n * sx.n + c * sx.c;
    for (int64_t y = 0; y < ys[2]; ++y) {
      const Span rows(y, op.window.stride_h, op.window.pad_h, op.kernel_h, xs[2]);
      for (int64_t z = 0; z < ys[3]; ++z) {
        const Span columns(z, op.window.stride_w, op.window.pad_w, op.kernel_w, xs[3]);
        const T share = source[static_cast<size_t>(n * sy.n + c * sy.c + y * sy.h + z * sy.w)] / count;
        for (int64_t i = rows.first; i < rows.last; ++i)
          for (int64_t j = columns.first; j < columns.last; ++j)
            plane[(rows.origin + i) * sx.h + (columns.origin + j) * sx.w] += share;
      }
    }
  });
  convert(kStored<T>, result.data(), dx.dtype(), dx.data(), result.size());
}

// A result in nhwc or plain. Takes the layout of the source if it has none yet, and goes through a copy if its layout
// is a library's own.
class Image {
 public:
  Image(Tensor& target, const Tensor& model) : target_(target), use_(target) {
    target.materialize(model.layout());
    if (target.layout() != Layout::opaque) return;
    const PurposeScope scope(Purpose::workspace);
    use_ = Tensor(target.device(), target.shape(), target.dtype(), Layout::nhwc);
  }
  Tensor& tensor() { return use_; }
  void finish() {
    if (target_.layout() == Layout::opaque) run(Reorder{use_, target_});
  }

 private:
  Tensor& target_;
  Tensor use_;
};

// Indices are addressed with the strides of the gradient: both are in its layout.
Tensor bytes_like(const Tensor& model, const Tensor& indices) {
  Tensor seen = readable(indices);
  if (seen.layout() == model.layout()) return seen;
  const PurposeScope scope(Purpose::workspace);
  Tensor copy(model.device(), indices.shape(), DType::u8, model.layout());
  run(Reorder{seen, copy});
  return copy;
}

Refusal refuses_max(const Device&, const MaxPool2d& op) { return refuses_dtypes({&op.x, &op.out}); }

void run_max(Device& device, const MaxPool2d& op) {
  const Tensor x = readable(op.x);
  Image out(op.out, x);
  Tensor places;
  if (!op.indices.empty()) {
    op.indices.materialize(out.tensor().layout());
    places = op.indices;
    if (!same_layout(places, out.tensor())) {
      const PurposeScope scope(Purpose::workspace);
      places = Tensor(device, op.indices.shape(), DType::u8, out.tensor().layout());
    }
  }
  Tensor* indices = op.indices.empty() ? nullptr : &places;
  computes_in_double({&op.x, &op.out}) ? max_pool<double>(op, x, out.tensor(), indices)
                                       : max_pool<float>(op, x, out.tensor(), indices);
  out.finish();
  if (indices && places.id() != op.indices.id()) run(Reorder{places, op.indices});
}

Refusal refuses_max_backward(const Device&, const MaxPool2dBackward& op) { return refuses_dtypes({&op.dy, &op.dx}); }

void run_max_backward(Device&, const MaxPool2dBackward& op) {
  const Tensor dy = readable(op.dy), indices = bytes_like(dy, op.indices);
  Image dx(op.dx, dy);
  computes_in_double({&op.dy, &op.dx}) ? max_pool_backward<double>(op, dy, indices, dx.tensor())
                                       : max_pool_backward<float>(op, dy, indices, dx.tensor());
  dx.finish();
}

Refusal refuses_average(const Device&, const AvgPool2d& op) { return refuses_dtypes({&op.x, &op.out}); }

void run_average(Device&, const AvgPool2d& op) {
  const Tensor x = readable(op.x);
  Image out(op.out, x);
  computes_in_double({&op.x, &op.out}) ? average_pool<double>(op, x, out.tensor())
                                       : average_pool<float>(op, x, out.tensor());
  out.finish();
}

Refusal refuses_average_backward(const Device&, const AvgPool2dBackward& op) {
  return refuses_dtypes({&op.dy, &op.dx});
}

void run_average_backward(Device&, const AvgPool2dBackward& op) {
  const Tensor dy = readable(op.dy);
  Image dx(op.dx, dy);
  computes_in_double({&op.dy, &op.dx}) ? average_pool_backward<double>(op, dy, dx.tensor())
                                       : average_pool_backward<float>(op, dy, dx.tensor());
  dx.finish();
}

}  // namespace

void add_poolings(KernelTable& table) {
  add_row<MaxPool2d, refuses_max, run_max>(table);
  add_row<MaxPool2dBackward, refuses_max_backward, run_max_backward>(table);
  add_row<AvgPool2d, refuses_average, run_average>(table);
  add_row<AvgPool2dBackward, refuses_average_backward, run_average_backward>(table);
}

}  // namespace halfmark::kernels::host
