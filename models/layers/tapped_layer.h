// Base class of the layers that are not containers: calls the tap with every activation and every gradient.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

class TappedLayer : public Layer {
 public:
  using Layer::Layer;

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) final {
    Tensor y = compute(pass, x, saved);
    if (pass.tap) pass.look("activation/" + name(), y);
    return y;
  }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) final {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    return differentiate(pass, dy, saved);
  }

 private:
  virtual Tensor compute(Pass& pass, const Tensor& x, Saved* saved) = 0;
  // dx has the dtype of forward's x: if forward cast its input, the backward of that cast comes last.
  virtual Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) = 0;
};

}  // namespace halfmark::models
