// A layer that runs under a policy of its own. Its input is cast to the policy's low dtype unless the policy has cast
// rules, which say for each operation what to cast. The result keeps the dtype that the layer gives: the next layer casts it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layer.h"

namespace halfmark::models {
namespace {

class UnderPolicy : public Layer {
 public:
  UnderPolicy(const Policy& policy, LayerPtr body) : Layer(body->name()), policy_(policy), body_(std::move(body)) {}

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    const PolicyScope scope(pass, policy_);
    Tensor y = body_->forward(pass, pass.entering(x), saved);
    if (saved) saved->keep_spec(x), saved->keep_spec(y);
    return y;
  }

  // As autograd: a gradient has the dtype of its tensor.
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    const PolicyScope scope(pass, policy_);
    const DType of_y = saved.take_spec().dtype, of_x = saved.take_spec().dtype;
    const Tensor dx = body_->backward(pass, pass.cast(dy, of_y), saved);
    return dx.empty() ? dx : pass.cast(dx, of_x);
  }

  std::vector<Param*> params() override { return body_->params(); }
  std::vector<State*> states() override { return body_->states(); }
  double forward_flops(const Shape& input) const override { return body_->forward_flops(input); }
  Shape output_shape(const Shape& input) const override { return body_->output_shape(input); }

 private:
  const Policy& policy_;
  LayerPtr body_;
};

}  // namespace

LayerPtr under_policy(const Policy& policy, LayerPtr body) {
  return std::make_unique<UnderPolicy>(policy, std::move(body));
}

}  // namespace halfmark::models
