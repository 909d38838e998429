// Branches joined along the channels.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layer.h"

namespace halfmark::models {
namespace {

class Concat : public Layer {  // the tap sees the joined tensor under this layer's name
 public:
  Concat(std::string name, std::vector<LayerPtr> branches) : Layer(std::move(name)), branches_(std::move(branches)) {
    HM_CHECK(!branches_.empty(), "concat '" + this->name() + "': no branches");
  }

  // The widest dtype of the branches, as PyTorch's cat under autocast and without it.
  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    std::vector<Tensor> parts;
    for (const LayerPtr& branch : branches_) parts.push_back(branch ? branch->forward(pass, x, saved) : x);
    DType dtype = parts[0].dtype();
    bool is_plain = true;
    int64_t channels = 0;
    for (const Tensor& part : parts) {
      dtype = wider(dtype, part.dtype()), channels += part.shape()[1];
      is_plain = is_plain && part.layout() == Layout::plain;
    }
    std::vector<int64_t> extents(parts[0].shape().extents().begin(), parts[0].shape().extents().end());
    extents[1] = channels;
    Tensor joined(pass.device, Shape(extents), dtype, is_plain ? Layout::plain : Layout::nhwc);
    int64_t first = 0;
    for (const Tensor& part : parts) {
      const int64_t count = part.shape()[1];
      run(CopyChannels{.x = pass.cast(part, dtype), .out = joined, .from = 0, .to = first, .count = count});
      first += count;
      if (saved) saved->keep_spec(part);
    }
    if (saved) saved->keep_spec(x);
    if (pass.tap) pass.look("activation/" + name(), joined);
    return joined;
  }

  // The gradients of the branches are added from the last to the first.
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    if (pass.tap) pass.look("gradient/" + name(), dy);
    const TensorSpec x = saved.take_spec();
    std::vector<TensorSpec> specs(branches_.size());
    for (size_t i = specs.size(); i-- > 0;) specs[i] = saved.take_spec();
    int64_t end = dy.shape()[1];
    Tensor dx;
    for (size_t i = branches_.size(); i-- > 0;) {
      const int64_t count = specs[i].shape[1];
      Tensor part(pass.device, specs[i].shape, dy.dtype(), dy.layout() == Layout::plain ? Layout::plain : Layout::nhwc);
      run(CopyChannels{.x = dy, .out = part, .from = end - count, .to = 0, .count = count});
      end -= count;
      part = pass.cast(part, specs[i].dtype);
      if (branches_[i]) part = branches_[i]->backward(pass, part, saved);
      dx = dx.empty() ? part : sum(pass, dx, part);
    }
    return pass.cast(dx, x.dtype);
  }

  std::vector<Param*> params() override {
    return all<Param>([](Layer& layer) { return layer.params(); });
  }
  std::vector<State*> states() override {
    return all<State>([](Layer& layer) { return layer.states(); });
  }
  double forward_flops(const Shape& input) const override {
    double flops = 0;
    for (const LayerPtr& branch : branches_) flops += branch ? branch->forward_flops(input) : 0;
    return flops;
  }
  Shape output_shape(const Shape& input) const override {
    int64_t channels = 0;
    Shape shape;
    for (const LayerPtr& branch : branches_) {
      shape = branch ? branch->output_shape(input) : input;
      channels += shape[1];
    }
    std::vector<int64_t> extents(shape.extents().begin(), shape.extents().end());
    extents[1] = channels;
    return Shape(extents);
  }

 private:
  static Tensor sum(Pass& pass, const Tensor& a, const Tensor& b) {
    const bool alike = a.layout() == b.layout() && a.layout() != Layout::opaque;
    Tensor out = pass.fresh(a.shape(), wider(a.dtype(), b.dtype()));
    run(Add{.a = alike ? a : pass.operand(a), .b = alike ? b : pass.operand(b), .out = out});
    return out;
  }

  template <class T>
  std::vector<T*> all(auto&& of) {
    std::vector<T*> found;
    for (const LayerPtr& branch : branches_)
      if (branch)
        for (T* item : of(*branch)) found.push_back(item);
    return found;
  }

  std::vector<LayerPtr> branches_;  // null: the input itself
};

}  // namespace

LayerPtr concat(std::string name, std::vector<LayerPtr> branches) {
  return std::make_unique<Concat>(std::move(name), std::move(branches));
}

}  // namespace halfmark::models
