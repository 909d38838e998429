// Operations on one element at a time, casts, and the sums over all axes but the channels.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/number/format.h"
#include "kernels/ops/activations.h"
#include "kernels/ops/operations/list.h"
#include "kernels/ops/operations/window.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

struct AddBias {  // out = x + bias, along axis 1
  static constexpr std::string_view name = "add_bias";
  const Tensor& x;     // [n, c] or [n, c, h, w]
  const Tensor& bias;  // [c]
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.input("bias", bias), v.output("out", out); }
};

struct BiasGradient {  // dbias[c] = sum of dy over all other axes, summed in fp32 (fp64 for f64)
  static constexpr std::string_view name = "bias_gradient";
  const Tensor& dy;
  Tensor& dbias;
  void check() const;
  void visit(auto&& v) const { v.input("dy", dy), v.output("dbias", dbias); }
};

template <class Row>  // a row of activations.h
struct Activation {   // out = f(x), element by element
  static constexpr std::string_view name = Row::name;
  const Tensor& x;
  Tensor& out;
  void check() const { check_same_shape(name, x, out); }
  void visit(auto&& v) const { v.input("x", x), v.output("out", out); }
};

template <class Row>
struct ActivationBackward {  // dx = f'(x) dy
  static constexpr std::string_view name = Row::backward_name;
  const Tensor& kept;  // forward's input or output, as Row::kept specifies
  const Tensor& dy;
  Tensor& dx;
  void check() const { check_same_shape(name, kept, dy), check_same_shape(name, kept, dx); }
  void visit(auto&& v) const { v.input("kept", kept), v.input("dy", dy), v.output("dx", dx); }
};

using Relu = Activation<activations::Relu>;
using ReluBackward = ActivationBackward<activations::Relu>;

struct Add {  // out = a + b
  static constexpr std::string_view name = "add";
  const Tensor& a;
  const Tensor& b;
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("a", a), v.input("b", b), v.output("out", out); }
};

struct Scale {  // out = factor x, with the factor rounded to fp32 (fp64 for f64)
  static constexpr std::string_view name = "scale";
  const Tensor& x;
  Tensor& out;
  double factor = 1;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), v.attribute(factor); }
};

struct Cast {
  static constexpr std::string_view name = "cast";
  const Tensor& x;
  Tensor& out;
  Rounding rounding = Rounding::near_even;
  uint64_t noise = 0;  // seed of stochastic rounding: element i takes rounding_noise(noise, i) of number/convert.h
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), v.attribute(rounding); }
};

// A cast to nearest even that also counts what rounding changed: to events[0..3] it adds how many values were inexact, overflowed,
// underflowed and became subnormal, as RoundEvents of number/format.h counts them. Nothing is counted of casts to f64.
struct CountedCast {
  static constexpr std::string_view name = "counted_cast";
  static constexpr int64_t kEvents = 4;
  const Tensor& x;
  Tensor& out;
  Tensor& events;  // f64 [kEvents], updated
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), visit_updated(v, "events", events); }
};

struct Reorder {  // the same values in another layout
  static constexpr std::string_view name = "reorder";
  const Tensor& x;
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out); }
};

}  // namespace halfmark::kernels
