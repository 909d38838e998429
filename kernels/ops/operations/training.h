// What a training step does with all gradients or parameters, or many of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/format.h"
#include "kernels/ops/operations/list.h"
#include "kernels/ops/optimizers.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// A tensor and what receives its cast, of the same shape.
struct CastPair {
  Tensor x, out;
  uint64_t noise = 0;  // as of Cast
};

// What Cast does, for each pair by itself and with the same bits: many small tensors in one launch.
struct CastTensors {
  static constexpr std::string_view name = "cast_tensors";
  std::span<CastPair> pairs;
  Rounding rounding = Rounding::near_even;
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, pairs, [&](CastPair& pair) { v.input("x", pair.x), v.output("out", pair.out); });
    v.attribute(rounding);
  }
};

// found_inf <- 1 if a value of any gradient is not finite (otherwise unchanged); gradient <- gradient * inverse_scale,
// including non-finite ones. As torch.amp.GradScaler, it tests gradients before they are unscaled.
struct Unscale {
  static constexpr std::string_view name = "unscale";
  std::span<Tensor> gradients;
  Tensor& found_inf;  // [1] f32
  float inverse_scale = 1;
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, gradients, [&](Tensor& gradient) { visit_updated(v, "gradient", gradient); });
    visit_updated(v, "found_inf", found_inf);
  }
};

// norm <- square root of the sum of the squares of all gradients: summed in fp64 in any order, rounded once.
struct GradientNorm {
  static constexpr std::string_view name = "gradient_norm";
  std::span<const Tensor> gradients;
  Tensor& norm;  // [1]
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, gradients, [&](const Tensor& gradient) { v.input("gradient", gradient); });
    v.output("norm", norm);
  }
};

// gradient <- gradient * min(1, limit / (norm + 1e-6)), in fp32 (fp64 for an f64 gradient), each stored once.
struct ClipGradients {
  static constexpr std::string_view name = "clip_gradients";
  std::span<Tensor> gradients;
  const Tensor& norm;  // [1]
  double limit = 1;    // a value, not part of the choice of row
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, gradients, [&](Tensor& gradient) { visit_updated(v, "gradient", gradient); });
    v.input("norm", norm);
  }
};

// How a step stores a parameter whose dtype is narrower than the arithmetic.
enum class Storage : uint8_t {
  nearest,
  // Rounded at random: element i, counted through all tensors of the step, takes rounding_noise(noise, i) of
  // number/convert.h. State is rounded to nearest.
  stochastic,
  // Compensated: with the change d of the step, c <- c - d; p' <- p + c; c <- c + (p - p'), where c, in `compensation`,
  // is what the parameter lacks. Decay that multiplies the parameter is part of d.
  kahan,
};

// Where a step rounds to the dtypes of the tensors. The arithmetic is fp32 (fp64 if parameter or gradient is f64).
enum class StepRounding : uint8_t {
  once,            // each of parameter and state when it is stored: PyTorch's fused implementations
  each_operation,  // after each operation of PyTorch's foreach=False, to the dtype of the parameter
};

// The tensors of one parameter in a step. All that are present have the shape of the parameter.
struct UpdatedTensors {
  Tensor parameter, gradient;
  Tensor first;         // SGD: the velocity, empty = no momentum; Adam: the mean of the gradients
  Tensor second;        // Adam: the mean of their squares
  Tensor compensation;  // for Storage::kahan
  Tensor low;           // receives the new parameter as stored, rounded to its own dtype; empty = none
};

// Whether `found_inf` of a step, whose memory the host can read, says that the step changes nothing.
inline bool is_skipped(const Tensor& found_inf) { return !found_inf.empty() && *found_inf.as<float>() != 0; }

// formulas::sgd_step for every element of every parameter.
struct SgdStep {
  static constexpr std::string_view name = "sgd_step";
  std::span<UpdatedTensors> tensors;
  Tensor found_inf{};  // f32 [1], of Unscale: if it is not 0, no tensor changes; empty: the step is made in any case
  double rate = 0.01, momentum = 0, dampening = 0, weight_decay = 0;  // values, not part of the choice of row
  bool nesterov = false;
  bool first = false;  // the first step of these parameters, in which the dampening does not act
  uint64_t noise = 0;
  Storage storage = Storage::nearest;
  StepRounding rounding = StepRounding::once;
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, tensors, [&](UpdatedTensors& t) {
      visit_updated(v, "parameter", t.parameter), v.input("gradient", t.gradient);
      visit_updated(v, "velocity", t.first), v.output("low", t.low), visit_updated(v, "compensation", t.compensation);
    });
    v.input("found_inf", found_inf), v.attribute(storage), v.attribute(rounding);
  }
};

// formulas::adam_step for every element of every parameter.
struct AdamStep {
  static constexpr std::string_view name = "adam_step";
  std::span<UpdatedTensors> tensors;
  Tensor found_inf{};  // as of SgdStep
  AdamKind kind = AdamKind::adam;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;  // counts from 1
  uint64_t noise = 0;
  Storage storage = Storage::nearest;
  StepRounding rounding = StepRounding::once;  // each_operation: not for AdamKind::keras
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, tensors, [&](UpdatedTensors& t) {
      visit_updated(v, "parameter", t.parameter), v.input("gradient", t.gradient), visit_updated(v, "mean", t.first);
      visit_updated(v, "mean_square", t.second), v.output("low", t.low);
      visit_updated(v, "compensation", t.compensation);
    });
    v.input("found_inf", found_inf), v.attribute(kind), v.attribute(storage), v.attribute(rounding);
  }
};

}  // namespace halfmark::kernels
