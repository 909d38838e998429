// y = x w^T + b.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class Linear : public TappedLayer {
 public:
  // torch.nn.Linear.reset_parameters: kaiming_uniform(a = sqrt 5) is U(-1 / sqrt(in), 1 / sqrt(in)), the bias likewise.
  Linear(const Init& init, std::string name, int64_t in, int64_t out, bool with_bias, const Start& start)
      : TappedLayer(std::move(name)) {
    weight_ = weight_of(init, this->name() + ".weight", {out, in}, in, out, start);
    if (with_bias) bias_ = bias_of(init, this->name() + ".bias", out, in, start);
  }

  std::vector<Param*> params() override {
    if (bias_.value.empty()) return {&weight_};
    return {&weight_, &bias_};
  }
  double forward_flops(const Shape& input) const override {
    return 2.0 * static_cast<double>(input[0]) * static_cast<double>(weight_.value.elements());
  }
  Shape output_shape(const Shape& input) const override { return {input[0], weight_.value.shape()[0]}; }

 private:
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor a = pass.input("linear", x), w = pass.weight("linear", weight_);
    Tensor y = pass.fresh(output_shape(x.shape()), pass.output_dtype("linear", a.dtype()));
    run(Matmul{.a = a, .b = w, .out = y, .transpose_b = true, .math = pass.math(a.dtype())});
    if (!bias_.value.empty()) run(AddBias{.x = y, .bias = pass.weight("linear", bias_), .out = y});
    if (saved) saved->keep_spec(x), saved->keep(w), saved->keep(a);
    return y;
  }

  // dx = dy w, dw = dy^T x, db = sum of dy over the batch.
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor a = saved.take(), w = saved.take();
    const TensorSpec x = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, a.dtype());
    const Math math = pass.math(a.dtype());
    pass.gradient(weight_, w.dtype(),
                  [&](Tensor& dw) { run(Matmul{.a = dy, .b = a, .out = dw, .transpose_a = true, .math = math}); });
    if (!bias_.value.empty())
      pass.gradient(bias_, w.dtype(), [&](Tensor& db) { run(BiasGradient{.dy = dy, .dbias = db}); });
    Tensor dx = pass.fresh(x.shape, a.dtype());
    run(Matmul{.a = dy, .b = w, .out = dx, .math = math});
    return pass.cast(dx, x.dtype);
  }

  Param weight_;  // [out, in]
  Param bias_;    // [out]
};

}  // namespace

LayerPtr linear(const Init& init, std::string name, int64_t in, int64_t out, bool bias, const Start& start) {
  return std::make_unique<Linear>(init, std::move(name), in, out, bias, start);
}

}  // namespace halfmark::models
