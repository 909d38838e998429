// Checks of shapes and attributes: the requirements of every operation on its operands.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/ops/ops.h"

namespace halfmark::kernels {
namespace {

void need(bool condition, std::string_view operation, const std::string& what) {
  HM_CHECK(condition, std::string(operation) + ": " + what);
}

void vector_of(std::string_view operation, std::string_view which, const Tensor& tensor, int64_t extent) {
  need(tensor.shape() == Shape{extent}, operation,
       std::string(which) + " must be of shape [" + std::to_string(extent) + "], not " + tensor.shape().text());
}

void rank(std::string_view operation, std::string_view which, const Tensor& tensor, int rank) {
  need(tensor.shape().rank() == rank, operation,
       std::string(which) + " must have rank " + std::to_string(rank) + ", not shape " + tensor.shape().text());
}

void check_window(std::string_view operation, const Window& w) {
  need(w.stride_h > 0 && w.stride_w > 0 && w.dilation_h > 0 && w.dilation_w > 0 && w.pad_h >= 0 && w.pad_w >= 0,
       operation, "strides and dilations must be positive and padding not negative");
  constexpr int kLimit = 32768;  // the signature of an operation packs them into 16 bits each (dispatch.h)
  for (const int value : {w.stride_h, w.stride_w, w.pad_h, w.pad_w, w.dilation_h, w.dilation_w})
    need(value < kLimit, operation,
         "strides, dilations and padding must be below " + std::to_string(kLimit) + ", not " + std::to_string(value));
}

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

void check_same_shape(std::string_view operation, const Tensor& a, const Tensor& b) {
  need(a.shape() == b.shape(), operation, "shapes differ: " + a.shape().text() + " and " + b.shape().text());
}

int64_t window_extent(int64_t input, int64_t kernel, int stride, int pad, int dilation) {
  const int64_t span = dilation * (kernel - 1) + 1;
  HM_CHECK(input + 2 * pad >= span, "a window of " + std::to_string(span) + " does not fit " + std::to_string(input) +
                                        " rows or columns with padding " + std::to_string(pad));
  return (input + 2 * pad - span) / stride + 1;
}

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

void AddBias::check() const {
  check_same_shape(name, x, out);
  need(x.shape().rank() == 2 || x.shape().rank() == 4, name, "x must have rank 2 or 4, not shape " + x.shape().text());
  vector_of(name, "bias", bias, x.shape()[1]);
}

void BiasGradient::check() const {
  need(dy.shape().rank() == 2 || dy.shape().rank() == 4, name,
       "dy must have rank 2 or 4, not shape " + dy.shape().text());
  vector_of(name, "dbias", dbias, dy.shape()[1]);
}

void BatchNorm::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, out);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "shift", shift, c), vector_of(name, "mean", mean, c);
  vector_of(name, "variance", variance, c), vector_of(name, "running_mean", running_mean, c);
  vector_of(name, "running_variance", running_variance, c);
  need(x.elements() > c, name, "training needs more than one value per channel: " + x.shape().text());
}

void BatchNormInference::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, out);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "shift", shift, c);
  vector_of(name, "running_mean", running_mean, c), vector_of(name, "running_variance", running_variance, c);
}

void BatchNormBackward::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, dy), check_same_shape(name, x, dx);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "mean", mean, c), vector_of(name, "variance", variance, c);
  vector_of(name, "dscale", dscale, c), vector_of(name, "dshift", dshift, c);
}

namespace {

// Each row uses a sequence of entries of scale and shift.
void check_rows(std::string_view operation, const Tensor& x, int64_t width, int64_t repeat, int64_t entries) {
  need(width > 0 && x.elements() % width == 0, operation,
       "rows of " + std::to_string(width) + " values do not divide x " + x.shape().text());
  need(repeat > 0 && width % repeat == 0 && entries % (width / repeat) == 0, operation,
       "rows of " + std::to_string(width) + " values, " + std::to_string(repeat) + " of an entry, do not divide " +
           std::to_string(entries) + " entries of scale");
}

}  // namespace

void NormalizeRows::check() const {
  check_same_shape(name, x, out);
  const int64_t entries = scale.empty() ? width / std::max<int64_t>(repeat, 1) : scale.elements();
  check_rows(name, x, width, repeat, entries);
  if (!scale.empty()) vector_of(name, "scale", scale, entries);
  if (!shift.empty()) vector_of(name, "shift", shift, entries);
  if (centred) vector_of(name, "mean", mean, x.elements() / width);
  vector_of(name, "inverse", inverse, x.elements() / width);
}

void NormalizeRowsBackward::check() const {
  check_same_shape(name, x, dy), check_same_shape(name, x, dx);
  const Tensor& any = !scale.empty() ? scale : !dscale.empty() ? dscale : dshift;
  const int64_t entries = any.empty() ? width / std::max<int64_t>(repeat, 1) : any.elements();
  check_rows(name, x, width, repeat, entries);
  if (!scale.empty()) vector_of(name, "scale", scale, entries);
  if (!dscale.empty()) vector_of(name, "dscale", dscale, entries);
  if (!dshift.empty()) vector_of(name, "dshift", dshift, entries);
  if (centred) vector_of(name, "mean", mean, x.elements() / width);
  vector_of(name, "inverse", inverse, x.elements() / width);
}

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
void Add::check() const { check_same_shape(name, a, b), check_same_shape(name, a, out); }

void SoftmaxCrossEntropy::check() const {
  rank(name, "logits", logits, 2), check_same_shape(name, logits, log_probabilities);
  vector_of(name, "labels", labels, logits.shape()[0]), vector_of(name, "loss", loss, 1);
  need(labels.dtype() == DType::i32, name, "labels must be i32");
  need(logits.elements() > 0, name, "the loss of an empty batch is undefined");
}

void SoftmaxCrossEntropyBackward::check() const {
  rank(name, "log_probabilities", log_probabilities, 2), check_same_shape(name, log_probabilities, dlogits);
  vector_of(name, "labels", labels, log_probabilities.shape()[0]);
  need(labels.dtype() == DType::i32, name, "labels must be i32");
}

void Cast::check() const {
  check_same_shape(name, x, out);
  need(is_floating(x.dtype()) && is_floating(out.dtype()), name, "both sides must be floating point");
}

void Reorder::check() const {
  check_same_shape(name, x, out);
  need(x.dtype() == out.dtype(), name, "a reorder must keep the dtype");
}

void Unscale::check() const { vector_of(name, "found_inf", found_inf, 1); }

void SgdStep::check() const {
  check_same_shape(name, parameter, gradient);
  if (!velocity.empty()) check_same_shape(name, parameter, velocity);
  if (!low.empty()) check_same_shape(name, parameter, low);
  need(momentum == 0 || !velocity.empty(), name, "momentum needs a velocity");
}

}  // namespace halfmark::kernels
