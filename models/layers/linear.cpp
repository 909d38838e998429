// y = x w^T + b over the last axis. If the pass fuses, product and bias are one operation, and so are the gradients of
// weight and bias: y is rounded once. An activation beside it is part of these operations too (fusible.h).
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/bias.h"
#include "models/layers/fusible.h"
#include "models/layers/quantized_linear.h"
#include "models/layers/tapped_layer.h"
#include "models/layers/weight.h"

namespace halfmark::models {
namespace {

class Linear : public TappedLayer, public FusibleLinear {
 public:
  // torch.nn.Linear.reset_parameters: kaiming_uniform(a = sqrt 5) is U(-1 / sqrt(in), 1 / sqrt(in)), the bias likewise.
  Linear(const Init& init, std::string name, int64_t in, int64_t out, bool with_bias, const Start& start,
         bool weight_norm)
      : TappedLayer(std::move(name)), weight_(init, this->name(), {out, in}, in, out, start, weight_norm) {
    if (with_bias) bias_ = Bias(init, this->name(), out, in, start);
  }
  Linear(std::string name, Param& weight) : TappedLayer(std::move(name)), weight_(weight) {}

  std::vector<Param*> params() override {
    std::vector<Param*> all = weight_.params();
    bias_.append_to(all);
    return all;
  }
  double forward_flops(const Shape& input) const override {
    return 2.0 * static_cast<double>(rows_of(input)) * static_cast<double>(weight_.shape().elements());
  }
  Shape output_shape(const Shape& input) const override {
    std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
    extents.back() = weight_.shape()[0];
    return Shape(extents);
  }

 private:
  static int64_t rows_of(const Shape& input) {
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < input.rank(); ++axis) rows *= input[axis];
    return rows;
  }
  // As a matrix, which is what the operations know.
  static Tensor matrix(Pass& pass, const Tensor& x) {
    const Shape& shape = x.shape();
    if (shape.rank() == 2) return x;
    return pass.plain(x).reshaped({rows_of(shape), shape[shape.rank() - 1]});
  }

  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    if (can_fuse(pass)) return fused(pass, x, saved, FusedActivation::none, false);
    if (saved) saved->keep_spec(x);
    const Tensor a = matrix(pass, pass.input("linear", x));
    Tensor y = quantizes(pass, x.dtype()) ? quantized_.forward(pass, name(), a, weight_.plain()->value, saved)
                                          : multiplied(pass, a, saved);
    bias_.add(pass, "linear", y);
    return as_given(pass, y, x.shape());
  }
  Tensor as_given(Pass& pass, const Tensor& y, const Shape& x) {
    return x.rank() == 2 ? y : pass.plain(y).reshaped(output_shape(x));
  }

  Tensor multiplied(Pass& pass, const Tensor& a, Saved* saved) {
    const Tensor w = weight_.forward(pass, "linear", saved);
    Tensor y = pass.fresh({a.shape()[0], w.shape()[0]}, pass.output_dtype("linear", a.dtype()));
    run(Matmul{.a = a, .b = w, .out = y, .transpose_b = true, .math = pass.math(a.dtype())});
    if (saved) saved->keep(a);
    return y;
  }

  // Keeps for the activation, last: of ReLU its mask or its result, of GELU its argument.
  Tensor fused(Pass& pass, const Tensor& x, Saved* saved, FusedActivation f, bool by_mask) {
    if (saved) saved->keep_spec(x);
    const Tensor a = matrix(pass, pass.input("linear", x)), w = weight_.forward(pass, "linear", saved),
                 bias = bias_.value(pass, "linear");
    Tensor y = pass.fresh({a.shape()[0], w.shape()[0]}, pass.output_dtype("linear", a.dtype())), kept;
    if (saved && f == FusedActivation::relu && by_mask)
      kept = Tensor(pass.device, {y.shape()[0], kernels::relu_mask_bytes(y.shape()[1])}, DType::u8);
    if (saved && f == FusedActivation::gelu_tanh) kept = pass.fresh(y.shape(), y.dtype());
    run(FusedMatmul{.a = a,
                    .b = w,
                    .bias = bias,
                    .out = y,
                    .kept = kept,
                    .transpose_b = true,
                    .activation = f,
                    .math = pass.math(a.dtype())});
    Tensor result = as_given(pass, y, x.shape());
    if (!saved) return result;
    saved->keep(a);
    if (f == FusedActivation::relu && !by_mask) saved->keep(y);
    if (!kept.empty()) saved->keep(kept);
    return result;
  }

  Tensor forward_activated(Pass& pass, const Tensor& x, Saved* saved, FusedActivation f, bool by_mask) override {
    return fused(pass, x, saved, f, by_mask);
  }

  // dx = dy w, dw = dy^T x, db = sum of dy over the batch.
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    if (can_fuse(pass)) return fused_backward(pass, dy_given, saved, false, FusedActivation::none, nullptr);
    if (quantizes(pass, dy_given.dtype())) return quantized_backward(pass, dy_given, saved);
    const Tensor a = saved.take(), w = saved.take();
    const Tensor dy = matrix(pass, pass.cast(dy_given, a.dtype()));
    const Math math = pass.math(a.dtype());
    weight_.gradient(pass, w.dtype(), saved,
                     [&](Tensor& dw) { run(Matmul{.a = dy, .b = a, .out = dw, .transpose_a = true, .math = math}); });
    const TensorSpec x = saved.take_spec();
    bias_.gradient(pass, w.dtype(), dy);
    Tensor dx = pass.fresh(a.shape(), a.dtype());
    run(Matmul{.a = dy, .b = w, .out = dx, .math = math});
    return as_input(pass, dx, x);
  }
  static Tensor as_input(Pass& pass, Tensor dx, const TensorSpec& x) {
    if (x.shape.rank() != 2) dx = pass.plain(dx).reshaped(x.shape);
    return pass.cast(dx, x.dtype);
  }

  bool can_fuse(const Pass& pass) const override { return takes_rounded(pass) && !bias_.is_none(); }
  bool takes_rounded(const Pass& pass) const override {
    return pass.fuses && !pass.policy().products && !casts_layer_inputs(pass.policy());
  }

  void bias_gradient_by(Pass& pass, DType computed, const std::function<void(Tensor&)>& compute) override {
    bias_.gradient_by(pass, computed, compute);
  }

  Tensor backward_activated(Pass& pass, const Tensor& dy_given, Saved& saved, FusedActivation after, FusedActivation f,
                            FusibleLinear* before) override {
    const Tensor kept = saved.take();
    const Tensor dy = matrix(pass, pass.cast(dy_given, kept.dtype()));
    Tensor dz = pass.fresh(kept.shape(), kept.dtype());
    if (after == FusedActivation::relu)
      run(ReluBackward{.kept = kept, .dy = dy, .dx = dz});
    else
      run(ActivationBackward<kernels::activations::GeluTanh>{.kept = kept, .dy = dy, .dx = dz});
    if (pass.tap) pass.look("gradient/" + name(), dz);
    return fused_backward(pass, dz, saved, false, f, before);
  }

  Tensor backward_through(Pass& pass, const Tensor& dy, Saved& saved, bool has_bias_gradient, FusedActivation f,
                          FusibleLinear* before) override {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    return through_input_cast(pass, saved,
                              [&] { return fused_backward(pass, dy, saved, has_bias_gradient, f, before); });
  }

  Tensor fused_backward(Pass& pass, const Tensor& dy_given, Saved& saved, bool has_bias_gradient, FusedActivation f,
                        FusibleLinear* before) {
    const Tensor a = saved.take(), w = saved.take();
    const Tensor dy = matrix(pass, pass.cast(dy_given, a.dtype()));
    const Math math = pass.math(a.dtype());
    const auto of_weight = [&](Tensor* db) {
      weight_.gradient(pass, w.dtype(), saved, [&](Tensor& dw) {
        if (!db) return run(Matmul{.a = dy, .b = a, .out = dw, .transpose_a = true, .math = math});
        const Tensor nothing;
        run(FusedMatmulBackward{.a = dy,
                                .b = a,
                                .kept = nothing,
                                .out = dw,
                                .dbias = *db,
                                .transpose_a = true,
                                .sums = BiasSums::a,
                                .math = math});
      });
    };
    if (has_bias_gradient)
      of_weight(nullptr);
    else
      bias_.gradient_by(pass, w.dtype(), [&](Tensor& db) { of_weight(&db); });
    const TensorSpec x = saved.take_spec();
    Tensor dx = pass.fresh(a.shape(), a.dtype());
    if (!before) {
      run(Matmul{.a = dy, .b = w, .out = dx, .math = math});
      return as_input(pass, dx, x);
    }
    const Tensor kept = saved.take();
    before->bias_gradient_by(pass, w.dtype(), [&](Tensor& db) {
      run(FusedMatmulBackward{
          .a = dy, .b = w, .kept = kept, .out = dx, .dbias = db, .activation = f, .sums = BiasSums::out, .math = math});
    });
    return as_input(pass, dx, x);
  }

  // Under a training recipe, if the layer has a weight of its own.
  bool quantizes(const Pass& pass, DType given) {
    return pass.policy().products && given != DType::f64 && !weight_.params().empty() && weight_.plain();
  }

  Tensor quantized_backward(Pass& pass, const Tensor& dy_given, Saved& saved) {
    const DType low = pass.input_dtype("linear", dy_given.dtype());
    const Tensor dy = matrix(pass, pass.cast(dy_given, low));
    Tensor dx = quantized_.backward(pass, name(), dy, saved, [&](const std::function<void(Tensor&)>& compute) {
      pass.gradient(*weight_.plain(), low, compute);
      bias_.gradient(pass, low, dy);
    });
    const TensorSpec x = saved.take_spec();
    if (x.shape.rank() != 2) dx = pass.plain(dx).reshaped(x.shape);
    return pass.cast(dx, x.dtype);
  }

  Weight weight_;  // [out, in]
  Bias bias_;
  QuantizedLinear quantized_;  // used under a policy with a recipe
};

}  // namespace

LayerPtr linear(const Init& init, std::string name, int64_t in, int64_t out, bool bias, const Start& start,
                bool weight_norm) {
  return std::make_unique<Linear>(init, std::move(name), in, out, bias, start, weight_norm);
}
LayerPtr tied_linear(std::string name, Param& weight) { return std::make_unique<Linear>(std::move(name), weight); }

}  // namespace halfmark::models
