// Quantisation of a matrix by the rule of a training recipe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/quantizer.h"
#include "kernels/ops/operations/list.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// Codes and scales of a matrix (number/quantizer.h). The products are summed over its depth. A rule with one tile has no
// scales but that of the tensor; a rule with two levels, NVFP4, stores the largest magnitude there (Scaled::divisor).
struct Quantize {
  static constexpr std::string_view name = "quantize";
  const Tensor& x;  // [rows, depth], or [depth, rows] if `transpose`: then the matrix is the transpose of x
  const Tensor&
      factor;      // f32 [1]: the codes are those of x * factor (delayed scaling); empty: the rule finds the scale
  Tensor& codes;   // [rows, depth_of_codes()]
  Tensor& scales;  // [tiles of rows, tiles of depth], in the dtype of the rule; empty for a rule with one tile
  Tensor& tensor_scale;  // f32 [1]; empty for a rule of tiles alone
  Tensor& amax;          // f32 [1]: the largest magnitude, as the rule sees NaN
  Tensor& losses;        // f64 [2]: how many numbers are flushed and saturated (QuantizationLosses); empty: not counted
  const Quantizer& rule;
  bool transpose = false;
  bool transform = false;  // hadamard_16 along the depth first, which is filled with zeros to a multiple of 16
  bool stochastic = false;
  NoiseStream noise{};  // of stochastic rounding

  int64_t rows() const { return x.shape()[transpose ? 1 : 0]; }
  int64_t depth() const { return x.shape()[transpose ? 0 : 1]; }
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("factor", factor), v.output("codes", codes), v.output("scales", scales);
    v.output("tensor_scale", tensor_scale), v.output("amax", amax), v.output("losses", losses);
    v.attribute(reinterpret_cast<intptr_t>(&rule)), v.attribute(transpose), v.attribute(transform);
    v.attribute(stochastic);  // not the noise, which differs from call to call
  }
};

// What one operand has under delayed scaling. All f32.
struct DelayedScale {
  Tensor amax;     // [1]: the largest magnitude of a tensor of this step
  Tensor history;  // [entries], updated (observe_amax() of number/quantizer.h)
  Tensor scale;    // [1], updated: of the next step
  Tensor used;     // [1], written at the end of a step: the scale before it, of what is computed again; empty: not kept
  float most = 0;  // the largest number of the codes: a value, as is the choice, and not part of the choice of row
  AmaxChoice choice = AmaxChoice::max;
};

// A step of delayed scaling for several operands with a history each: each observes its amax, and at the end of a step gets its
// next scale (scale_after_step() of number/quantizer.h).
struct DelayedScalingStep {
  static constexpr std::string_view name = "delayed_scaling_step";
  std::span<DelayedScale> scales;
  bool ends_step = true;  // false: another tensor of the same operand follows in this step
  void check() const;
  void visit(auto&& v) const {
    visit_list(v, scales, [&](DelayedScale& one) {
      v.input("amax", one.amax), visit_updated(v, "history", one.history), visit_updated(v, "scale", one.scale);
      v.output("used", one.used);
    });
    v.attribute(ends_step);
  }
};

// Shapes of the results for a matrix [rows, depth].
int64_t depth_of_codes(int64_t depth, bool transform);
bool has_one_tile(const Quantizer& rule);
Shape shape_of_scales(const Quantizer& rule, int64_t rows, int64_t depth_of_codes);  // not for a rule with one tile

}  // namespace halfmark::kernels
