// Containers: layers in sequence, a residual block, and the change of shape from images to vectors.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/fusible.h"
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

class Sequential : public Layer, public FusibleWithRelu, public SumsInput, public SumsGradient {
 public:
  Sequential(std::string name, std::vector<LayerPtr> layers) : Layer(std::move(name)), layers_(std::move(layers)) {
    for (size_t i = 0; i < layers_.size(); ++i)
      HM_CHECK(layers_[i], "sequential '" + this->name() + "': layer " + std::to_string(i) + " is null");
  }

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    return forward_until(layers_.size(), pass, {x, {}}, saved);
  }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    return backward_from(layers_.size(), pass, dy, saved);
  }
  FusibleWithRelu* fusible_with_relu(const Pass& pass, bool adds) override {
    return !layers_.empty() && layers_.back()->fusible_with_relu(pass, adds) ? this : nullptr;
  }
  Tensor forward_with_relu(Pass& pass, const Tensor& x, const RunBranch& branch, Saved* saved) override {
    const Tensor y = forward_until(layers_.size() - 1, pass, {x, {}}, saved);
    return layers_.back()->fusible_with_relu(pass, branch != nullptr)->forward_with_relu(pass, y, branch, saved);
  }
  Tensor backward_with_relu(Pass& pass, Tensor dy, Saved& saved, const RunBranchBackward& branch) override {
    FusibleWithRelu* last = layers_.back()->fusible_with_relu(pass, branch != nullptr);
    Tensor dx = last->backward_with_relu(pass, std::move(dy), saved, branch);
    return backward_from(layers_.size() - 1, pass, std::move(dx), saved);
  }
  bool can_sum_input(const Pass& pass) const override { return input_sum_at(pass, 0) != nullptr; }
  Tensor forward_of_sum(Pass& pass, Branches x, std::string_view, Saved* saved, Tensor* sum) override {
    return forward_until(layers_.size(), pass, std::move(x), saved, sum);
  }
  bool can_sum(const Pass& pass) const override { return first_sum(pass) != nullptr; }
  Tensor backward_and_sum(Pass& pass, const Tensor& dy, Saved& saved, const Tensor& addend) override {
    return backward_from(layers_.size(), pass, dy, saved, addend);
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
  // `x`: a sum only if the first layer can sum its input; `sum` gets it then.
  Tensor forward_until(size_t end, Pass& pass, Branches x, Saved* saved, Tensor* sum = nullptr) {
    Branches y = std::move(x);
    for (size_t i = 0; i < end; ++i) {
      Tensor* own_sum = i == 0 ? sum : nullptr;
      if (LeavesSum* block = i + 1 < end ? block_before_sum(pass, i) : nullptr) {
        y = block->forward_branches(pass, std::move(y), saved, own_sum);
        continue;
      }
      FusibleRowNorm* rounding = norm_before_linear(pass, i);
      if (y.is_sum()) {
        y = {input_sum_at(pass, i)->forward_of_sum(pass, std::move(y), rounding ? "linear" : "", saved, own_sum), {}};
        continue;
      }
      if (rounding) {
        y.a = rounding->forward_for(pass, y.a, "linear", saved);
        continue;
      }
      const FusedActivation f = fused_after(pass, i);
      FusibleWithRelu* clipped = layer_before_relu(pass, i);
      if (f == FusedActivation::none && !clipped) {
        y.a = layers_[i]->forward(pass, y.a, saved);
        continue;
      }
      if (clipped)
        y.a = clipped->forward_with_relu(pass, y.a, nullptr, saved);
      else
        y.a = linear_at(pass, i)->forward_activated(pass, y.a, saved, f, linear_at(pass, i + 2) != nullptr);
      ++i;
      if (pass.tap) pass.look("activation/" + layers_[i]->name(), y.a);
    }
    return y.a;
  }
  // `addend`: of the first layer, which sums; empty: none.
  Tensor backward_from(size_t end, Pass& pass, Tensor dx, Saved& saved, const Tensor& addend = {}) {
    bool has_bias_gradient = false;  // of the layer whose turn it is: computed with the layer after it
    bool is_added = addend.empty();
    for (size_t i = end; i-- > 0;) {
      if (FusibleWithRelu* clipped = i >= 1 ? layer_before_relu(pass, i - 1) : nullptr) {
        dx = clipped->backward_with_relu(pass, std::move(dx), saved, nullptr);
        --i;  // that layer is done too
        continue;
      }
      const FusedActivation after = i >= 1 ? fused_after(pass, i - 1) : FusedActivation::none;
      if (after != FusedActivation::none) --i;  // to the layer that computed it
      FusibleLinear* linear = linear_at(pass, i);
      const FusedActivation before = linear && i >= 2 ? fused_after(pass, i - 2) : FusedActivation::none;
      FusibleLinear* source = before == FusedActivation::none ? nullptr : linear_at(pass, i - 2);
      if (after != FusedActivation::none)
        dx = linear->backward_activated(pass, dx, saved, after, before, source);
      else if (source || has_bias_gradient)
        dx = linear->backward_through(pass, dx, saved, has_bias_gradient, before, source);
      else if (i == 0 && !addend.empty())
        is_added = true, dx = first_sum(pass)->backward_and_sum(pass, dx, saved, addend);
      else
        dx = layers_[i]->backward(pass, dx, saved);
      has_bias_gradient = source != nullptr;
      if (source) --i;  // the activation before is done
    }
    HM_CHECK(is_added, name() + ": the gradient that goes on beside the block was not added");
    return dx;
  }

  // Layer i, if it can compute the sum of branches before it and runs by itself; else null.
  SumsInput* input_sum_at(const Pass& pass, size_t i) const {
    if (i >= layers_.size() || layer_before_relu(pass, i)) return nullptr;
    auto* layer = dynamic_cast<SumsInput*>(layers_[i].get());
    return layer && layer->can_sum_input(pass) ? layer : nullptr;
  }
  // Layer i, if the layer after it computes its sum; else null.
  LeavesSum* block_before_sum(const Pass& pass, size_t i) const {
    return input_sum_at(pass, i + 1) ? dynamic_cast<LeavesSum*>(layers_[i].get()) : nullptr;
  }
  // The first layer, if its backward can add another gradient to its own and runs by itself; else null.
  SumsGradient* first_sum(const Pass& pass) const {
    if (layers_.empty() || layer_before_relu(pass, 0)) return nullptr;
    auto* first = dynamic_cast<SumsGradient*>(layers_[0].get());
    return first && first->can_sum(pass) ? first : nullptr;
  }
  // Layer i, if it computes the next layer, a ReLU, too; else null.
  FusibleWithRelu* layer_before_relu(const Pass& pass, size_t i) const {
    if (!pass.fuses || i + 1 >= layers_.size()) return nullptr;
    if (layers_[i + 1]->fused_activation(pass) != FusedActivation::relu) return nullptr;
    return layers_[i]->fusible_with_relu(pass, false);
  }
  // Layer i, if it rounds its result for the next layer; else null.
  FusibleRowNorm* norm_before_linear(const Pass& pass, size_t i) const {
    if (i + 1 >= layers_.size()) return nullptr;
    const auto* next = dynamic_cast<const FusibleLinear*>(layers_[i + 1].get());
    return next && next->takes_rounded(pass) ? dynamic_cast<FusibleRowNorm*>(layers_[i].get()) : nullptr;
  }
  // The layer as one that can fuse, or null.
  FusibleLinear* linear_at(const Pass& pass, size_t i) const {
    if (!pass.fuses || i >= layers_.size()) return nullptr;
    auto* linear = dynamic_cast<FusibleLinear*>(layers_[i].get());
    return linear && linear->can_fuse(pass) ? linear : nullptr;
  }
  // The activation that layer i computes with its product, which is the next layer.
  FusedActivation fused_after(const Pass& pass, size_t i) const {
    if (!linear_at(pass, i) || i + 1 >= layers_.size()) return FusedActivation::none;
    return layers_[i + 1]->fused_activation(pass);
  }

  template <class T>
  std::vector<T*> all(auto&& of) {
    std::vector<T*> found;
    for (const LayerPtr& layer : layers_)
      for (T* item : of(*layer)) found.push_back(item);
    return found;
  }

  std::vector<LayerPtr> layers_;
};

// y = body(x) + shortcut(x); the tap sees the sum under this layer's name
class Residual : public Layer, public FusibleWithRelu, public SumsInput, public LeavesSum {
 public:
  Residual(std::string name, LayerPtr body, LayerPtr shortcut)
      : Layer(std::move(name)), body_(std::move(body)), shortcut_(std::move(shortcut)) {
    HM_CHECK(body_, "residual '" + this->name() + "': its body is null");
  }

  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    return summed(pass, forward_branches(pass, {x, {}}, saved, nullptr));
  }
  Branches forward_branches(Pass& pass, Branches given, Saved* saved, Tensor* sum) override {
    Tensor x = given.a, a;
    if (given.is_sum())
      a = input_sum(pass)->forward_of_sum(pass, std::move(given), "", saved, &x);
    else
      a = body_->forward(pass, x, saved);
    if (sum) *sum = x;
    const Tensor b = shortcut_ ? shortcut_->forward(pass, x, saved) : x;
    if (saved) saved->keep_spec(x), saved->keep_spec(a), saved->keep_spec(b);
    return {pass.input("add", a), pass.input("add", b), name()};
  }
  bool can_sum_input(const Pass& pass) const override { return input_sum(pass) != nullptr; }
  Tensor forward_of_sum(Pass& pass, Branches x, std::string_view, Saved* saved, Tensor* sum) override {
    return summed(pass, forward_branches(pass, std::move(x), saved, sum));
  }

  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    const TensorSpec b = saved.take_spec(), a = saved.take_spec(), x = saved.take_spec();
    Tensor through_shortcut = pass.cast(dy, b.dtype);
    if (shortcut_) through_shortcut = shortcut_->backward(pass, through_shortcut, saved);
    const Tensor of_body = pass.cast(dy, a.dtype);
    auto* sums = dynamic_cast<SumsGradient*>(body_.get());
    if (sums && sums->can_sum(pass))
      return pass.cast(sums->backward_and_sum(pass, of_body, saved, through_shortcut), x.dtype);
    const Tensor through_body = body_->backward(pass, of_body, saved);
    return pass.cast(pass.sum(through_body, through_shortcut), x.dtype);
  }

  // The norm at the end of the body adds the shortcut.
  FusibleWithRelu* fusible_with_relu(const Pass& pass, bool adds) override {
    return !adds && body_->fusible_with_relu(pass, true) ? this : nullptr;
  }
  Tensor forward_with_relu(Pass& pass, const Tensor& x, const RunBranch& other, Saved* saved) override {
    HM_CHECK(!other, "residual '" + name() + "' adds nothing but its own branches");
    TensorSpec b;
    const auto shortcut = [&] {
      Tensor result = shortcut_ ? shortcut_->forward(pass, x, saved) : x;
      b = {result.shape(), result.dtype()};
      return result;
    };
    Tensor y = body_->fusible_with_relu(pass, true)->forward_with_relu(pass, x, shortcut, saved);
    if (saved) saved->keep_spec({x.shape(), x.dtype()}), saved->keep_spec(b);
    return y;
  }
  Tensor backward_with_relu(Pass& pass, Tensor dy, Saved& saved, const RunBranchBackward&) override {
    const TensorSpec b = saved.take_spec(), x = saved.take_spec();
    Tensor through_shortcut;
    const auto shortcut = [&](Tensor db) {
      through_shortcut = pass.cast(db, b.dtype);
      db = {};
      if (shortcut_) through_shortcut = shortcut_->backward(pass, through_shortcut, saved);
    };
    const Tensor through_body =
        body_->fusible_with_relu(pass, true)->backward_with_relu(pass, std::move(dy), saved, shortcut);
    const Tensor dx = pass.sum(through_body, through_shortcut);
    return pass.cast(dx, x.dtype);
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
  SumsInput* input_sum(const Pass& pass) const {
    auto* body = dynamic_cast<SumsInput*>(body_.get());
    return body && body->can_sum_input(pass) ? body : nullptr;
  }
  template <class T>
  static std::vector<T*> both(std::vector<T*> first, const std::vector<T*>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  LayerPtr body_, shortcut_;
};

}  // namespace

Tensor summed(Pass& pass, const Branches& x) {
  Tensor y = pass.sum(x.a, x.b);
  if (pass.tap) pass.look("activation/" + x.name, y);
  return y;
}

LayerPtr flatten(std::string name) { return std::make_unique<Flatten>(std::move(name)); }
LayerPtr sequential(std::string name, std::vector<LayerPtr> layers) {
  return std::make_unique<Sequential>(std::move(name), std::move(layers));
}
LayerPtr residual(std::string name, LayerPtr body, LayerPtr shortcut) {
  return std::make_unique<Residual>(std::move(name), std::move(body), std::move(shortcut));
}

}  // namespace halfmark::models
