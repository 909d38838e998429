#include "kernels/ops/operations/contraction.h"

#include <cstdint>
#include <string>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_convolution(std::string_view operation, const Tensor& x, const Tensor& w, const Tensor& y,
                       const Window& window, int groups) {
  rank(operation, "the image", x, 4), rank(operation, "the filter", w, 4), rank(operation, "the result", y, 4);
  check_window(operation, window);
  const Shape &xs = x.shape(), &ws = w.shape();
  need(groups > 0 && xs[1] % groups == 0 && ws[0] % groups == 0 && ws[1] == xs[1] / groups, operation,
       "filter " + ws.text() + " does not fit the image " + xs.text() + " in " + std::to_string(groups) + " groups");
  const Shape expected{xs[0], ws[0], window_extent(xs[2], ws[2], window.stride_h, window.pad_h, window.dilation_h),
                       window_extent(xs[3], ws[3], window.stride_w, window.pad_w, window.dilation_w)};
  need(y.shape() == expected, operation,
       "the result must be of shape " + expected.text() + ", not " + y.shape().text());
}

}  // namespace

void Matmul::check() const {
  rank(name, "a", a, 2), rank(name, "b", b, 2), rank(name, "out", out, 2);
  const int64_t m = a.shape()[transpose_a ? 1 : 0], k = a.shape()[transpose_a ? 0 : 1];
  const int64_t kb = b.shape()[transpose_b ? 1 : 0], n = b.shape()[transpose_b ? 0 : 1];
  need(k == kb, name, "inner extents differ: " + a.shape().text() + " and " + b.shape().text());
  need(out.shape() == Shape{m, n}, name, "out must be of shape " + Shape{m, n}.text() + ", not " + out.shape().text());
  need(math.split_k >= 1, name, "split_k must be positive");
  need(beta == 0 || out.layout() != Layout::any, name, "a non-zero beta needs an out with memory");
}

void ScaledMatmul::check() const {
  rank(name, "a", a.codes, 2), rank(name, "b", b.codes, 2), rank(name, "out", out, 2);
  const int64_t m = a.rows(), n = b.rows();
  need(b.depth() == a.depth(), name,
       "inner extents differ: " + std::to_string(a.depth()) + " and " + std::to_string(b.depth()));
  need(out.shape() == Shape{m, n}, name, "out must be of shape " + Shape{m, n}.text() + ", not " + out.shape().text());
  need(a.scales.empty() == b.scales.empty(), name, "either both operands have scales or neither");
  for (const Scaled* one : {&a, &b})
    if (!one->tensor_scale.empty()) vector_of(name, "a tensor's scale", one->tensor_scale, 1);
  if (a.scales.empty()) return;
  for (const Scaled* one : {&a, &b}) {
    const Shape &codes = one->codes.shape(), &scales = one->scales.shape();
    rank(name, "scales", one->scales, 2);
    const bool fits = one->tile_depth == 0 ? scales[1] > 0 && codes[1] % scales[1] == 0 && one->tile_rows == 1
                                           : scales[1] == (codes[1] + one->tile_depth - 1) / one->tile_depth;
    need(fits && scales[0] == (codes[0] + one->tile_rows - 1) / one->tile_rows, name,
         "scales " + scales.text() + " do not fit an operand " + codes.text());
  }
  need(a.block() == b.block(), name,
       "blocks of " + std::to_string(a.block()) + " and of " + std::to_string(b.block()) + " do not fit each other");
  need(a.scales.dtype() == b.scales.dtype(), name, "both scales must be of one dtype");
}

void DotProducts::check() const {
  rank(name, "a", a, 2);
  check_same_shape(name, a, b);
  vector_of(name, "c", c, a.shape()[0]), vector_of(name, "out", out, a.shape()[0]);
  need(scale_a.empty() == scale_b.empty(), name, "either both operands have scales or neither");
  if (multiprocessor) {
    vector_of(name, "multiprocessor", *multiprocessor, a.shape()[0]);
    need(multiprocessor->dtype() == DType::i32, name, "multiprocessor must be i32");
  }
  if (scale_a.empty()) return;
  check_same_shape(name, scale_a, scale_b);
  rank(name, "scale_a", scale_a, 2);
  const int64_t scales = scale_a.shape()[1];
  need(scale_a.shape()[0] == a.shape()[0] && scales > 0 && a.shape()[1] % scales == 0, name,
       "scales " + scale_a.shape().text() + " do not fit operands " + a.shape().text());
  need(scale_a.dtype() == scale_b.dtype(), name, "both scales must be of one dtype");
}

void Conv2d::check() const { check_convolution(name, x, w, out, window, groups); }
void Conv2dBackwardData::check() const { check_convolution(name, dx, w, dy, window, groups); }
void Conv2dBackwardWeights::check() const { check_convolution(name, x, dw, dy, window, groups); }

}  // namespace halfmark::kernels
