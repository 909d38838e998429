// y = max(x, 0). Backward needs the output only, which the next layer keeps anyway.
#include <memory>
#include <string>
#include <utility>

#include "models/layers/leaf.h"

namespace halfmark::models {
namespace {

class ReluLayer : public Leaf {
 public:
  using Leaf::Leaf;

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input("relu", x_given);
    Tensor y = pass.fresh(x.shape(), pass.output_dtype("relu", x.dtype()));
    run(Relu{.x = x, .out = y});
    if (saved) saved->keep_form(x_given), saved->keep(y);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor y = saved.take();
    const Form x = saved.take_form();
    const Tensor dy = pass.cast(dy_given, y.dtype());
    Tensor dx = pass.fresh(x.shape, y.dtype());
    run(ReluBackward{.y = y, .dy = dy, .dx = dx});
    return pass.cast(dx, x.dtype);
  }
};

}  // namespace

LayerPtr relu(std::string name) { return std::make_unique<ReluLayer>(std::move(name)); }

}  // namespace halfmark::models
