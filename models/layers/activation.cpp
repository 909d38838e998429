// y = f(x) for every activation of kernels/ops/activations.h. Backward keeps f's output where the derivative can be
// computed from it, which the next layer keeps anyway, else its input.
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/number/error.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

template <class Row>
class ActivationLayer : public TappedLayer {
 public:
  using TappedLayer::TappedLayer;
  FusedActivation fused_activation(const Pass& pass) const override {
    const DType low = pass.policy().low;
    if (pass.input_dtype(activations::operation_of<Row>(), low) != low) return FusedActivation::none;  // casts it
    if constexpr (std::is_same_v<Row, activations::Relu>) return FusedActivation::relu;
    if constexpr (std::is_same_v<Row, activations::GeluTanh>) return FusedActivation::gelu_tanh;
    return FusedActivation::none;
  }

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input(activations::operation_of<Row>(), x_given);
    Tensor y = pass.fresh(x.shape(), pass.output_dtype(activations::operation_of<Row>(), x.dtype()));
    run(Activation<Row>{.x = x, .out = y});
    if (saved) saved->keep_spec(x_given), saved->keep(Row::kept == activations::Kept::output ? y : x);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor kept = saved.take();
    const TensorSpec x = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, kept.dtype());
    Tensor dx = pass.fresh(x.shape, kept.dtype());
    run(ActivationBackward<Row>{.kept = kept, .dy = dy, .dx = dx});
    return pass.cast(dx, x.dtype);
  }
};

}  // namespace

LayerPtr activation(std::string_view kind, std::string name) {
  LayerPtr layer;
  std::string known;
  activations::All::each([&]<class Row>() {
    if (Row::name == kind) layer = std::make_unique<ActivationLayer<Row>>(name);
    known.append(known.empty() ? "" : ", ").append(Row::name);
  });
  HM_CHECK(layer, "unknown activation '" + std::string(kind) + "'; known: " + known);
  return layer;
}

LayerPtr relu(std::string name) { return activation("relu", std::move(name)); }

}  // namespace halfmark::models
