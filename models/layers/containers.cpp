// Containers: layers in sequence, a residual block, and the change of shape from images to vectors.
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class Flatten : public TappedLayer {  // [n, c, h, w] -> [n, c h w]
 public:
  using TappedLayer::TappedLayer;
  Shape output_shape(const Shape& x) const override { return {x[0], x[0] ? x.elements() / x[0] : 0}; }

 private:
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    if (saved) saved->keep_spec(x);
    return pass.plain(x).reshaped(output_shape(x.shape()));
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    return pass.cast(pass.plain(dy).reshaped(x.shape), x.dtype);
  }
};

class Sequential : public Layer {
 public:
  Sequential(std::string name, std::vector<LayerPtr> layers) : Layer(std::move(name)), layers_(std::move(layers)) {
    for (size_t i = 0; i < layers_.size(); ++i)
      HM_CHECK(layers_[i], "sequential '" + this->name() + "': layer " + std::to_string(i) + " is null");
  }

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    Tensor y = x;
    for (const LayerPtr& layer : layers_) y = layer->forward(pass, y, saved);
    return y;
  }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    Tensor dx = dy;
    for (size_t i = layers_.size(); i-- > 0;) dx = layers_[i]->backward(pass, dx, saved);
    return dx;
  }
  std::vector<Param*> params() override {
    return all<Param>([](Layer& layer) { return layer.params(); });
  }
  std::vector<State*> states() override {
    return all<State>([](Layer& layer) { return layer.states(); });
  }
  double forward_flops(const Shape& input) const override {
    double flops = 0;
    Shape shape = input;
    for (const LayerPtr& layer : layers_) flops += layer->forward_flops(shape), shape = layer->output_shape(shape);
    return flops;
  }
  Shape output_shape(const Shape& input) const override {
    Shape shape = input;
    for (const LayerPtr& layer : layers_) shape = layer->output_shape(shape);
    return shape;
  }

 private:
  template <class T>
  std::vector<T*> all(auto&& of) {
    std::vector<T*> found;
    for (const LayerPtr& layer : layers_)
      for (T* item : of(*layer)) found.push_back(item);
    return found;
  }

  std::vector<LayerPtr> layers_;
};

class Residual : public Layer {  // y = body(x) + shortcut(x); the tap sees the sum under this layer's name
 public:
  Residual(std::string name, LayerPtr body, LayerPtr shortcut)
      : Layer(std::move(name)), body_(std::move(body)), shortcut_(std::move(shortcut)) {
    HM_CHECK(body_, "residual '" + this->name() + "': its body is null");
  }

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor a = body_->forward(pass, x, saved);
    const Tensor b = shortcut_ ? shortcut_->forward(pass, x, saved) : x;
    if (saved) saved->keep_spec(x), saved->keep_spec(a), saved->keep_spec(b);
    Tensor y = add(pass, pass.input("add", a), pass.input("add", b));
    if (pass.tap) pass.look("activation/" + name(), y);
    return y;
  }

  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    const TensorSpec b = saved.take_spec(), a = saved.take_spec(), x = saved.take_spec();
    Tensor through_shortcut = pass.cast(dy, b.dtype);
    if (shortcut_) through_shortcut = shortcut_->backward(pass, through_shortcut, saved);
    const Tensor through_body = body_->backward(pass, pass.cast(dy, a.dtype), saved);
    return pass.cast(add(pass, through_body, through_shortcut), x.dtype);
  }

  std::vector<Param*> params() override {
    return both(body_->params(), shortcut_ ? shortcut_->params() : std::vector<Param*>());
  }
  std::vector<State*> states() override {
    return both(body_->states(), shortcut_ ? shortcut_->states() : std::vector<State*>());
  }
  double forward_flops(const Shape& input) const override {
    return body_->forward_flops(input) + (shortcut_ ? shortcut_->forward_flops(input) : 0);
  }
  Shape output_shape(const Shape& input) const override { return body_->output_shape(input); }

 private:
  // The sum in the wider dtype, as in PyTorch's type promotion. Operands of different layouts are both made plain.
  static Tensor add(Pass& pass, const Tensor& a, const Tensor& b) {
    const bool alike = a.layout() == b.layout() && a.layout() != Layout::opaque;
    const Tensor left = alike ? a : pass.operand(a), right = alike ? b : pass.operand(b);
    Tensor sum = pass.fresh(a.shape(), wider(a.dtype(), b.dtype()));
    run(Add{.a = left, .b = right, .out = sum});
    return sum;
  }

  template <class T>
  static std::vector<T*> both(std::vector<T*> first, const std::vector<T*>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  LayerPtr body_, shortcut_;
};

}  // namespace

LayerPtr flatten(std::string name) { return std::make_unique<Flatten>(std::move(name)); }
LayerPtr sequential(std::string name, std::vector<LayerPtr> layers) {
  return std::make_unique<Sequential>(std::move(name), std::move(layers));
}
LayerPtr residual(std::string name, LayerPtr body, LayerPtr shortcut) {
  return std::make_unique<Residual>(std::move(name), std::move(body), std::move(shortcut));
}

}  // namespace halfmark::models
