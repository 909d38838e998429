// Layer norm, RMS norm and group norm: each row of values is normalised by itself (kernels/ops NormalizeRows).
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/layers/fusible.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

struct RowNorm {
  std::string_view operation;  // in the cast rules
  int64_t entries;             // of scale and shift: features or channels
  int64_t groups;              // of channels, each one row with all its pixels; 0: a row is the last axis
  bool centred;                // subtract the mean, and have a shift
  double epsilon;
};

class RowNormLayer : public TappedLayer, public FusibleRowNorm, public SumsInput, public SumsGradient {
 public:
  // torch.nn.LayerNorm, RMSNorm, GroupNorm: scale 1, shift 0.
  RowNormLayer(const Init& init, std::string name, const RowNorm& norm) : TappedLayer(std::move(name)), norm_(norm) {
    const Shape shape{norm.entries};
    const auto count = static_cast<size_t>(norm.entries);
    scale_ = init.param(this->name() + ".scale", shape, init.policy.param, std::vector<double>(count, 1.0));
    if (norm.centred)
      shift_ = init.param(this->name() + ".shift", shape, init.policy.param, std::vector<double>(count, 0.0));
  }

  std::vector<Param*> params() override {
    if (!norm_.centred) return {&scale_};
    return {&scale_, &shift_};
  }

 private:
  // Values of a row, and consecutive ones that share an entry.
  int64_t pixels(const Shape& x) const { return norm_.groups ? x.elements() / (x[0] * x[1]) : 1; }
  int64_t width(const Shape& x) const { return norm_.groups ? x[1] / norm_.groups * pixels(x) : norm_.entries; }

  Tensor forward_for(Pass& pass, const Tensor& x, std::string_view next_operation, Saved* saved) override {
    Tensor y = normalised(pass, x, dtype_for(pass, result_dtype(pass, x.dtype()), next_operation), saved);
    if (pass.tap) pass.look("activation/" + name(), y);
    return y;
  }
  bool can_sum_input(const Pass& pass) const override { return pass.fuses && !casts_layer_inputs(pass.policy()); }
  Tensor forward_of_sum(Pass& pass, Branches x, std::string_view next_operation, Saved* saved, Tensor* sum) override {
    const DType dtype = wider(x.a.dtype(), x.b.dtype()), result = result_dtype(pass, dtype),
                out = next_operation.empty() ? result : dtype_for(pass, result, next_operation);
    const bool together = pass.input_dtype(norm_.operation, dtype) == dtype && x.a.layout() == Layout::plain &&
                          x.b.layout() == Layout::plain;
    const Tensor given = together ? pass.fresh(x.a.shape(), dtype) : summed(pass, std::exchange(x, {}));
    if (sum) *sum = given;
    Tensor y = normalised(pass, given, out, saved, x);
    if (pass.tap) pass.look("activation/" + name(), y);
    return y;
  }
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    return normalised(pass, x, result_dtype(pass, x.dtype()), saved);
  }
  DType result_dtype(const Pass& pass, DType given) const {
    return pass.output_dtype(norm_.operation, pass.input_dtype(norm_.operation, given));
  }
  // That of the operation which reads the result, if no number is lost in the result's own.
  static DType dtype_for(const Pass& pass, DType own, std::string_view next_operation) {
    const DType next = pass.input_dtype(next_operation, own);
    return is_exact_in(own, next) ? next : own;
  }
  // Whether every number of `narrow` is one of `wide`.
  static bool is_exact_in(DType wide, DType narrow) { return wider(wide, narrow) == wide; }

  // `branches`: x_given is empty memory for their sum, which needs no cast; without branches: x_given is normalised.
  Tensor normalised(Pass& pass, const Tensor& x_given, DType dtype, Saved* saved, const Branches& branches = {}) {
    const bool sums = branches.is_sum();
    Tensor x = sums ? x_given : pass.plain(pass.input(norm_.operation, x_given));
    const Tensor scale = pass.weight(norm_.operation, scale_);
    const Tensor shift = norm_.centred ? pass.weight(norm_.operation, shift_) : Tensor();
    const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Shape rows{x.elements() / width(x.shape())};
    Tensor y = pass.fresh(x.shape(), dtype);
    Tensor inverse(pass.device, rows, wide), mean = norm_.centred ? Tensor(pass.device, rows, wide) : Tensor();
    const NormalizeRows op{.x = x,
                           .scale = scale,
                           .shift = shift,
                           .out = y,
                           .mean = mean,
                           .inverse = inverse,
                           .width = width(x.shape()),
                           .repeat = pixels(x.shape()),
                           .centred = norm_.centred,
                           .epsilon = norm_.epsilon};
    if (sums) {
      run(AddNormalizeRows{.a = branches.a,
                           .b = branches.b,
                           .scale = scale,
                           .shift = shift,
                           .sum = x,
                           .out = y,
                           .mean = mean,
                           .inverse = inverse,
                           .width = op.width,
                           .repeat = op.repeat,
                           .centred = op.centred,
                           .epsilon = op.epsilon});
      if (pass.tap) pass.look("activation/" + branches.name, x);
    } else {
      run(op);
    }
    if (!saved) return y;
    saved->keep_spec(x_given), saved->keep(scale), saved->keep(inverse), saved->keep(x);
    if (norm_.centred) saved->keep(mean);
    return y;
  }

  bool can_sum(const Pass& pass) const override { return pass.fuses && !casts_layer_inputs(pass.policy()); }
  Tensor backward_and_sum(Pass& pass, const Tensor& dy, Saved& saved, const Tensor& addend) override {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    return gradient_of_input(pass, dy, saved, addend);
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    return gradient_of_input(pass, dy, saved, {});
  }

  // `addend`: empty: nothing is added.
  Tensor gradient_of_input(Pass& pass, const Tensor& dy_given, Saved& saved, const Tensor& addend) {
    const Tensor mean = norm_.centred ? saved.take() : Tensor();
    const Tensor x = saved.take(), inverse = saved.take(), scale = saved.take();
    const TensorSpec given = saved.take_spec();
    // A pass that fuses leaves an exact cast of the gradient to the operation.
    const bool casts = !pass.fuses || !is_exact_in(x.dtype(), dy_given.dtype());
    const Tensor dy = pass.operand(casts ? pass.cast(dy_given, x.dtype()) : dy_given);
    const bool sums = !addend.empty() && addend.dtype() == x.dtype() && addend.layout() == x.layout();
    Tensor dx = pass.fresh(x.shape(), x.dtype()), none;
    const auto differentiate = [&](Tensor& dscale, Tensor& dshift) {
      const NormalizeRowsBackward op{.x = x,
                                     .dy = dy,
                                     .scale = scale,
                                     .mean = mean,
                                     .inverse = inverse,
                                     .dx = dx,
                                     .dscale = dscale,
                                     .dshift = dshift,
                                     .width = width(x.shape()),
                                     .repeat = pixels(x.shape()),
                                     .centred = norm_.centred};
      if (!sums) return run(op);
      run(NormalizeRowsBackwardAdd{.x = x,
                                   .dy = dy,
                                   .addend = addend,
                                   .scale = scale,
                                   .mean = mean,
                                   .inverse = inverse,
                                   .out = dx,
                                   .dscale = dscale,
                                   .dshift = dshift,
                                   .width = op.width,
                                   .repeat = op.repeat,
                                   .centred = op.centred});
    };
    pass.gradient(scale_, scale.dtype(), [&](Tensor& dscale) {
      if (!norm_.centred) return differentiate(dscale, none);
      pass.gradient(shift_, scale.dtype(), [&](Tensor& dshift) { differentiate(dscale, dshift); });
    });
    dx = pass.cast(dx, given.dtype);
    return sums || addend.empty() ? dx : pass.sum(dx, addend);
  }

  RowNorm norm_;
  Param scale_, shift_;  // [entries]
};

}  // namespace

LayerPtr layer_norm(const Init& init, std::string name, int64_t features, double epsilon) {
  return std::make_unique<RowNormLayer>(init, std::move(name), RowNorm{"layer_norm", features, 0, true, epsilon});
}
LayerPtr rms_norm(const Init& init, std::string name, int64_t features, double epsilon) {
  return std::make_unique<RowNormLayer>(init, std::move(name), RowNorm{"rms_norm", features, 0, false, epsilon});
}
LayerPtr group_norm(const Init& init, std::string name, int64_t channels, int64_t groups, double epsilon) {
  return std::make_unique<RowNormLayer>(init, std::move(name), RowNorm{"group_norm", channels, groups, true, epsilon});
}

}  // namespace halfmark::models
