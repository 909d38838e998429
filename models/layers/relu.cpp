// y = max(x, 0). Backward needs the output only, which the next layer keeps as its input.
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class ReluLayer : public TappedLayer {
 public:
  using TappedLayer::TappedLayer;

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input("relu", x_given);
    Tensor y = pass.fresh(x.shape(), pass.output_dtype("relu", x.dtype()));
    run(Relu{.x = x, .out = y});
    if (saved) saved->keep_spec(x_given), saved->keep(y);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor y = saved.take();
    const TensorSpec x = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, y.dtype());
    Tensor dx = pass.fresh(x.shape, y.dtype());
    run(ReluBackward{.y = y, .dy = dy, .dx = dx});
    return pass.cast(dx, x.dtype);
  }
};

}  // namespace

LayerPtr relu(std::string name) { return std::make_unique<ReluLayer>(std::move(name)); }

}  // namespace halfmark::models
