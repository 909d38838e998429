// Reference rows of pooling. The maximum is exact; averages and the sums of overlapping windows are computed in fp64
// and rounded once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::reference {
namespace {

// The windows of one plane (one image, one channel).
struct Pooling {
  int64_t planes, h, w, oh, ow;
  int kernel_h, kernel_w;
  Window window;

  template <class Op>
  Pooling(const Op& op, const Shape& x, const Shape& y)
      : planes(x[0] * x[1]),
        h(x[2]),
        w(x[3]),
        oh(y[2]),
        ow(y[3]),
        kernel_h(op.kernel_h),
        kernel_w(op.kernel_w),
        window(op.window) {}

  // f(element of the plane, place in the window) for the places of the window at (y, x) that are inside.
  void each(int64_t y, int64_t x, auto&& f) const {
    for (int i = 0; i < kernel_h; ++i)
      for (int j = 0; j < kernel_w; ++j) {
        const int64_t yy = y * window.stride_h - window.pad_h + i, xx = x * window.stride_w - window.pad_w + j;
        if (yy >= 0 && yy < h && xx >= 0 && xx < w) f(static_cast<size_t>(yy * w + xx), i * kernel_w + j);
      }
  }
  // f(y, x, element of the image before the plane, element of the result) for every window, planes in parallel.
  void each_window(auto&& f) const {
    parallel_for(planes, std::max<int64_t>(1, kGrain / std::max<int64_t>(h * w, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane)
        for (int64_t y = 0; y < oh; ++y)
          for (int64_t x = 0; x < ow; ++x)
            f(y, x, static_cast<size_t>(plane * h * w), static_cast<size_t>((plane * oh + y) * ow + x));
    });
  }
};

void max_pool(Device&, const MaxPool2d& op) {
  const Pooling pooling(op, op.x.shape(), op.out.shape());
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out(static_cast<size_t>(op.out.elements()));
  std::vector<unsigned char> indices(out.size());
  pooling.each_window([&](int64_t y, int64_t xx, size_t base, size_t o) {
    bool first = true;
    pooling.each(y, xx, [&](size_t element, int place) {
      const double value = x[base + element];
      if (!first && !formulas::pool_takes(value, out[o])) return;
      first = false, out[o] = value, indices[o] = static_cast<unsigned char>(place);
    });
  });
  settle(op.out, op.x);
  write(op.out, out);
  if (op.indices.empty()) return;
  settle(op.indices, op.out);
  write_codes(op.indices, indices);
}

void max_pool_backward(Device&, const MaxPool2dBackward& op) {
  const Pooling pooling(op, op.dx.shape(), op.dy.shape());
  const std::vector<double> dy = read<double>(op.dy);
  const std::vector<unsigned char> indices = op.indices.codes();
  std::vector<double> dx(static_cast<size_t>(op.dx.elements()));
  pooling.each_window([&](int64_t y, int64_t x, size_t base, size_t o) {
    pooling.each(y, x, [&](size_t element, int place) {
      if (place == indices[o]) dx[base + element] += dy[o];
    });
  });
  settle(op.dx, op.dy);
  write(op.dx, dx);
}

void avg_pool(Device&, const AvgPool2d& op) {
  const Pooling pooling(op, op.x.shape(), op.out.shape());
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out(static_cast<size_t>(op.out.elements()));
  pooling.each_window([&](int64_t y, int64_t xx, size_t base, size_t o) {
    pooling.each(y, xx, [&](size_t element, int) { out[o] += x[base + element]; });
    out[o] /= op.kernel_h * op.kernel_w;
  });
  settle(op.out, op.x);
  write(op.out, out);
}

void avg_pool_backward(Device&, const AvgPool2dBackward& op) {
  const Pooling pooling(op, op.dx.shape(), op.dy.shape());
  const std::vector<double> dy = read<double>(op.dy);
  std::vector<double> dx(static_cast<size_t>(op.dx.elements()));
  pooling.each_window([&](int64_t y, int64_t x, size_t base, size_t o) {
    const double share = dy[o] / (op.kernel_h * op.kernel_w);
    pooling.each(y, x, [&](size_t element, int) { dx[base + element] += share; });
  });
  settle(op.dx, op.dy);
  write(op.dx, dx);
}

}  // namespace

void add_pool_rows(KernelTable& table) {
  add_row<MaxPool2d>(table, max_pool), add_row<MaxPool2dBackward>(table, max_pool_backward);
  add_row<AvgPool2d>(table, avg_pool), add_row<AvgPool2dBackward>(table, avg_pool_backward);
}

}  // namespace halfmark::kernels::reference
