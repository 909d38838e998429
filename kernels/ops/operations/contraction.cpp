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
  rank(name, "scale_a", a.scales, 2), rank(name, "scale_b", b.scales, 2);
  const int64_t m = a.codes.shape()[0], n = b.codes.shape()[0], k = a.codes.shape()[1], scales = a.scales.shape()[1];
  need(b.codes.shape()[1] == k, name,
       "inner extents differ: " + a.codes.shape().text() + " and " + b.codes.shape().text());
  need(out.shape() == Shape{m, n}, name, "out must be of shape " + Shape{m, n}.text() + ", not " + out.shape().text());
  need(scales > 0 && k % scales == 0 && a.scales.shape() == Shape{m, scales} && b.scales.shape() == Shape{n, scales},
       name,
       "scales " + a.scales.shape().text() + " and " + b.scales.shape().text() + " do not fit operands " +
           a.codes.shape().text() + " and " + b.codes.shape().text());
  need(a.scales.dtype() == b.scales.dtype(), name, "both scales must be of one dtype");
}

void DotProducts::check() const {
  rank(name, "a", a, 2);
  check_same_shape(name, a, b);
  vector_of(name, "c", c, a.shape()[0]), vector_of(name, "out", out, a.shape()[0]);
  need(scale_a.empty() == scale_b.empty(), name, "either both operands have scales or neither");
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
