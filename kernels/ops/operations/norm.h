// Batch norm, and the norms of rows: layer norm, RMS norm, group norm.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/ops/operations/elementwise.h"
#include "kernels/ops/operations/list.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// Training batch norm: out = scale (x - mean) / sqrt(variance + epsilon) + shift with the biased variance of the batch;
// running <- (1 - momentum) running + momentum batch, with the unbiased variance there. Statistics are at least fp32.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  const Tensor& x;      // [n, c, h, w]
  const Tensor& scale;  // [c]
  const Tensor& shift;  // [c]
  Tensor& out;
  Tensor& mean;              // [c] f32 (f64 for f64): of this batch, for backward
  Tensor& variance;          // [c] likewise, biased
  Tensor& running_mean;      // [c] read and written, any dtype
  Tensor& running_variance;  // [c] likewise
  double momentum = 0.1, epsilon = 1e-5;
  // The sum of x and that of (x - mean)^2 of a channel are rounded to this format after each addition, in the order of n, h,
  // w; a term is not rounded before. Null: at least fp32, in the order of the row.
  const Format* accumulate = nullptr;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.output("out", out), v.output("mean", mean), v.output("variance", variance);
    visit_updated(v, "running_mean", running_mean), visit_updated(v, "running_variance", running_variance);
    v.attribute(momentum), v.attribute(epsilon);
    if (accumulate) v.attribute(*accumulate);
  }
};

struct BatchNormInference {  // with the running statistics
  static constexpr std::string_view name = "batch_norm_inference";
  const Tensor& x;
  const Tensor& scale;
  const Tensor& shift;
  const Tensor& running_mean;
  const Tensor& running_variance;
  Tensor& out;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.input("running_mean", running_mean), v.input("running_variance", running_variance);
    v.output("out", out), v.attribute(epsilon);
  }
};

// With xhat = (x - mean) / sqrt(variance + epsilon) and m = n h w:
// dscale = sum dy xhat, dshift = sum dy, dx = scale / sqrt(variance + epsilon) (dy - dshift / m - xhat dscale / m).
struct BatchNormBackward {
  static constexpr std::string_view name = "batch_norm_backward";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& variance;
  Tensor& dx;
  Tensor& dscale;
  Tensor& dshift;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("scale", scale), v.input("mean", mean), v.input("variance", variance);
    v.output("dx", dx), v.output("dscale", dscale), v.output("dshift", dshift), v.attribute(epsilon);
  }
};

// Backward of BatchNormInference, where mean and variance are constants: with xhat = (x - running_mean) / sqrt(running_variance + epsilon),
// dscale = sum dy xhat, dshift = sum dy, dx = scale / sqrt(running_variance + epsilon) dy.
struct BatchNormInferenceBackward {
  static constexpr std::string_view name = "batch_norm_inference_backward";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& running_mean;
  const Tensor& running_variance;
  Tensor& dx;
  Tensor& dscale;
  Tensor& dshift;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("scale", scale);
    v.input("running_mean", running_mean), v.input("running_variance", running_variance);
    v.output("dx", dx), v.output("dscale", dscale), v.output("dshift", dshift), v.attribute(epsilon);
  }
};

// Layer norm, RMS norm and group norm: x, in logical order, is a sequence of rows of `width` values, and each row is
// normalised by itself: out = scale (x - mean) inverse + shift with inverse = 1 / sqrt(mean of (x - mean)^2 + epsilon), or
// with 0 in place of the mean if not `centred`. Value i of x uses entry (i / repeat) mod n of scale and shift;
// n * repeat is a multiple of the width and divides the elements of x.
// `summed` takes the sum of squares in place of their mean: weight norm, which divides a row by its length.
// With x in f32 and a narrower `out`, the result is rounded to f32 and then to the dtype of `out`, as by a cast behind the norm.
struct NormalizeRows {
  static constexpr std::string_view name = "normalize_rows";
  const Tensor& x;
  const Tensor& scale;  // [n]; empty: 1
  const Tensor& shift;  // [n]; empty: 0
  Tensor& out;
  Tensor& mean;     // [rows] f32 (f64 for f64), for backward; empty if not centred
  Tensor& inverse;  // [rows] likewise
  int64_t width, repeat = 1;
  bool centred = true;
  bool summed = false;  // not with `centred`
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.output("out", out), v.output("mean", mean), v.output("inverse", inverse);
    v.attribute(width), v.attribute(repeat), v.attribute(centred), v.attribute(summed), v.attribute(epsilon);
  }
};

// A sum and its norm, as at the end of one residual block and the start of the next: sum = a + b as by Add, out = the norm of the
// rounded sum as by NormalizeRows. The numbers are those of the two operations.
struct AddNormalizeRows {
  static constexpr std::string_view name = "add_normalize_rows";
  const Tensor& a;
  const Tensor& b;      // shape as a
  const Tensor& scale;  // [n]; empty: 1
  const Tensor& shift;  // [n]; empty: 0
  Tensor& sum;          // shape as a, dtype of a or of b
  Tensor& out;          // shape as a
  Tensor& mean;         // [rows] f32 (f64 for f64), for backward; empty if not centred
  Tensor& inverse;      // [rows] likewise
  int64_t width, repeat = 1;
  bool centred = true;
  double epsilon = 1e-5;
  Add add() const { return {.a = a, .b = b, .out = sum}; }
  NormalizeRows norm(const Tensor& summed) const {
    return {.x = summed,
            .scale = scale,
            .shift = shift,
            .out = out,
            .mean = mean,
            .inverse = inverse,
            .width = width,
            .repeat = repeat,
            .centred = centred,
            .epsilon = epsilon};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b), v.input("scale", scale), v.input("shift", shift);
    v.output("sum", sum), v.output("out", out), v.output("mean", mean), v.output("inverse", inverse);
    v.attribute(width), v.attribute(repeat), v.attribute(centred), v.attribute(epsilon);
  }
};

// With xhat = (x - mean) inverse and g = scale dy: dx = inverse (g - mean of g - xhat times the mean of g xhat) over each
// row, without the mean of g if not centred, and with the sum of g xhat in place of its mean if `summed`; dscale and dshift
// are the sums of dy xhat and dy over their values.
struct NormalizeRowsBackward {
  static constexpr std::string_view name = "normalize_rows_backward";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& inverse;
  Tensor& dx;
  Tensor& dscale;  // [n]; empty: not wanted
  Tensor& dshift;  // [n]; empty: not wanted
  int64_t width, repeat = 1;
  bool centred = true;
  bool summed = false;  // not with `centred`
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("scale", scale), v.input("mean", mean), v.input("inverse", inverse);
    v.output("dx", dx), v.output("dscale", dscale), v.output("dshift", dshift);
    v.attribute(width), v.attribute(repeat), v.attribute(centred), v.attribute(summed);
  }
};

// The gradient of what is normalised and also goes on beside the norm, as the input of a residual block: out = dx + addend, where
// dx is that of NormalizeRowsBackward, rounded to the dtype of x. The numbers are those of the two operations.
struct NormalizeRowsBackwardAdd {
  static constexpr std::string_view name = "normalize_rows_backward_add";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& addend;  // as x
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& inverse;
  Tensor& out;     // as x
  Tensor& dscale;  // [n]; empty: not wanted
  Tensor& dshift;  // [n]; empty: not wanted
  int64_t width, repeat = 1;
  bool centred = true;
  NormalizeRowsBackward norm(Tensor& dx) const {
    return {.x = x,
            .dy = dy,
            .scale = scale,
            .mean = mean,
            .inverse = inverse,
            .dx = dx,
            .dscale = dscale,
            .dshift = dshift,
            .width = width,
            .repeat = repeat,
            .centred = centred};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("addend", addend), v.input("scale", scale), v.input("mean", mean);
    v.input("inverse", inverse), v.output("out", out), v.output("dscale", dscale), v.output("dshift", dshift);
    v.attribute(width), v.attribute(repeat), v.attribute(centred);
  }
};

}  // namespace halfmark::kernels
