// Base class of the layers that are not containers: casts the input where the policy casts that of every layer, and calls the
// tap with every activation and every gradient.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

class TappedLayer : public Layer {
 public:
  using Layer::Layer;

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) final {
    Tensor y = compute(pass, pass.layer_input(x), saved);
    if (saved && casts_layer_inputs(pass.policy())) saved->keep_spec(x);
    if (pass.tap) pass.look("activation/" + name(), y);
    return y;
  }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) final {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    return through_input_cast(pass, saved, [&] { return differentiate(pass, dy, saved); });
  }

 protected:
  // The backward of forward: that of the layer, then that of the cast of its input, if there was one.
  template <class Backward>
  static Tensor through_input_cast(Pass& pass, Saved& saved, Backward&& of_layer) {
    if (!casts_layer_inputs(pass.policy())) return of_layer();
    const DType given = saved.take_spec().dtype;
    const Tensor dx = of_layer();
    return dx.empty() ? dx : pass.cast(dx, given);
  }

 private:
  virtual Tensor compute(Pass& pass, const Tensor& x, Saved* saved) = 0;
  // dx has the dtype of forward's x: if forward cast its input, the backward of that cast comes last.
  virtual Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) = 0;
};

}  // namespace halfmark::models
