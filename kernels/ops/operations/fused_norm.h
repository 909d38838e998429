// Batch norm together with what follows it in a network, forward and backward: the addition of another branch, and ReLU.
//
// Each output is rounded once: what separate operations store in between stays in at least fp32.
#pragma once

#include <string_view>

#include "kernels/ops/operations/norm.h"

namespace halfmark::kernels {

// Training batch norm, then out = max(0, normalised x + addend). A NaN stays NaN. Statistics as of BatchNorm. out may be
// written over the addend.
struct FusedBatchNorm {
  static constexpr std::string_view name = "fused_batch_norm";
  const Tensor& x;       // [n, c, h, w]
  const Tensor& addend;  // of the same shape; empty: none
  const Tensor& scale;   // [c]
  const Tensor& shift;   // [c]
  Tensor& out;
  Tensor& mean;              // [c] f32 (f64 for f64): of this batch, for backward
  Tensor& variance;          // [c] likewise, biased
  Tensor& running_mean;      // [c] read and written, any dtype
  Tensor& running_variance;  // [c] likewise
  double momentum = 0.1, epsilon = 1e-5;
  BatchNorm norm(Tensor& into) const {
    return {.x = x,
            .scale = scale,
            .shift = shift,
            .out = into,
            .mean = mean,
            .variance = variance,
            .running_mean = running_mean,
            .running_variance = running_variance,
            .momentum = momentum,
            .epsilon = epsilon};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("addend", addend), v.input("scale", scale), v.input("shift", shift);
    v.output("out", out), v.output("mean", mean), v.output("variance", variance);
    visit_updated(v, "running_mean", running_mean), visit_updated(v, "running_variance", running_variance);
    v.attribute(momentum), v.attribute(epsilon);
  }
};

// With g = 0 where kept <= 0, else dy: daddend = g, and the other results are those of BatchNormBackward for g.
struct FusedBatchNormBackward {
  static constexpr std::string_view name = "fused_batch_norm_backward";
  const Tensor& x;
  const Tensor& kept;  // `out` of forward
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& variance;
  Tensor& dx;
  Tensor& daddend;  // empty: not wanted
  Tensor& dscale;
  Tensor& dshift;
  double epsilon = 1e-5;
  BatchNormBackward norm(const Tensor& gradient) const {
    return {.x = x,
            .dy = gradient,
            .scale = scale,
            .mean = mean,
            .variance = variance,
            .dx = dx,
            .dscale = dscale,
            .dshift = dshift,
            .epsilon = epsilon};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("kept", kept), v.input("dy", dy);
    v.input("scale", scale), v.input("mean", mean), v.input("variance", variance);
    v.output("dx", dx), v.output("daddend", daddend), v.output("dscale", dscale), v.output("dshift", dshift);
    v.attribute(epsilon);
  }
};

}  // namespace halfmark::kernels
