#include "kernels/ops/operations/pooling.h"

#include <string>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_pool(std::string_view operation, const Tensor& x, const Tensor& y, int kernel_h, int kernel_w,
                const Window& window) {
  rank(operation, "the image", x, 4), rank(operation, "the result", y, 4);
  check_window(operation, window);
  need(kernel_h > 0 && kernel_w > 0 && window.dilation_h == 1 && window.dilation_w == 1, operation,
       "pooling windows must be positive and not dilated");
  need(2 * window.pad_h <= kernel_h && 2 * window.pad_w <= kernel_w, operation,
       "padding must be at most half the window");
  const Shape& xs = x.shape();
  const Shape expected{xs[0], xs[1], window_extent(xs[2], kernel_h, window.stride_h, window.pad_h, 1),
                       window_extent(xs[3], kernel_w, window.stride_w, window.pad_w, 1)};
  need(y.shape() == expected, operation,
       "the result must be of shape " + expected.text() + ", not " + y.shape().text());
}

}  // namespace

void MaxPool2d::check() const {
  check_pool(name, x, out, kernel_h, kernel_w, window);
  if (indices.empty()) return;
  check_same_shape(name, out, indices);
  need(indices.dtype() == DType::u8 && kernel_h * kernel_w <= 256, name,
       "indices are u8: windows of at most 256 elements");
}

void MaxPool2dBackward::check() const {
  check_pool(name, dx, dy, kernel_h, kernel_w, window), check_same_shape(name, dy, indices);
  need(indices.dtype() == DType::u8, name, "indices must be u8");
}

void AvgPool2d::check() const { check_pool(name, x, out, kernel_h, kernel_w, window); }
void AvgPool2dBackward::check() const { check_pool(name, dx, dy, kernel_h, kernel_w, window); }

}  // namespace halfmark::kernels
