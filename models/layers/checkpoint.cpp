// Gradient checkpointing: forward keeps the input of the body only, and backward computes the body's forward again. As
// with torch.utils.checkpoint, the second forward changes running statistics a second time, and dropout draws the same.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layer.h"

namespace halfmark::models {
namespace {

class Checkpoint : public Layer {
 public:
  Checkpoint(std::string name, LayerPtr body) : Layer(std::move(name)), body_(std::move(body)) {
    HM_CHECK(body_, "checkpoint '" + this->name() + "': its body is null");
  }

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    if (saved) saved->keep(x), saved->keep_key(pass.key);
    return body_->forward(pass, x, nullptr);
  }

  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    const RandomKey key = saved.take_key();
    const Tensor x = saved.take();
    Saved again;
    {
      // Without the tap of the first forward, which has seen these activations.
      Pass repeated(pass.device, pass.policy(), pass.training, key, pass.recomputed_tap);
      repeated.recomputes = true, repeated.caches_casts = pass.caches_casts, repeated.fuses = pass.fuses;
      const CastAhead ahead(repeated, casts_[pass.training]);
      body_->forward(repeated, x, &again);
    }
    Tensor dx = body_->backward(pass, dy, again);
    HM_CHECK(again.empty(), "checkpoint '" + name() + "': backward did not use everything that forward kept");
    return dx;
  }

  std::vector<Param*> params() override { return body_->params(); }
  std::vector<State*> states() override { return body_->states(); }
  // Of the first forward: like work that a model needs, not what this way of training adds.
  double forward_flops(const Shape& input) const override { return body_->forward_flops(input); }
  Shape output_shape(const Shape& input) const override { return body_->output_shape(input); }

 private:
  LayerPtr body_;
  std::map<bool, ParameterCasts> casts_;  // of the last repeated forward, by whether the pass trained
};

}  // namespace

LayerPtr checkpoint(std::string name, LayerPtr body) {
  return std::make_unique<Checkpoint>(std::move(name), std::move(body));
}

}  // namespace halfmark::models
