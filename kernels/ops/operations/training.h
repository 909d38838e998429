// What a training step does with gradients and parameters.
#pragma once

#include <string_view>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// found_inf <- 1 if any gradient is not finite (otherwise unchanged); gradient <- gradient * inverse_scale, including
// non-finite ones. amp_semantics.md 2.1: the test is on the scaled gradient.
struct Unscale {
  static constexpr std::string_view name = "unscale";
  Tensor& gradient;
  Tensor& found_inf;  // [1] f32
  float inverse_scale = 1;
  void check() const;
  void visit(auto&& v) const { v.output("gradient", gradient), v.output("found_inf", found_inf); }
};

// v <- momentum v + (g + weight_decay p); p <- p - rate v, computed in fp32 (fp64 for f64), each stored once. `low`, if
// present, receives the new parameter rounded to its own dtype (the copy that the layers compute with).
struct SgdStep {
  static constexpr std::string_view name = "sgd_step";
  Tensor& parameter;
  const Tensor& gradient;
  Tensor& velocity;  // empty = no momentum
  Tensor& low;       // empty = none
  double rate = 0.01, momentum = 0, weight_decay = 0;
  void check() const;
  void visit(auto&& v) const {
    v.output("parameter", parameter), v.input("gradient", gradient), v.output("velocity", velocity),
        v.output("low", low);
  }
};

}  // namespace halfmark::kernels
