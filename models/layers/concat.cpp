// Branches joined along the channels, or along the last axis.
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
  Concat(std::string name, std::vector<LayerPtr> branches, bool last_axis)
      : Layer(std::move(name)), branches_(std::move(branches)), last_axis_(last_axis) {
    HM_CHECK(!branches_.empty(), "concat '" + this->name() + "': no branches");
  }

  // The widest dtype of the branches, as PyTorch's cat under autocast and without it.
  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    std::vector<Tensor> parts;
    for (const LayerPtr& branch : branches_) parts.push_back(branch ? branch->forward(pass, x, saved) : x);
    if (saved)
      for (const Tensor& part : parts) saved->keep_spec(part);
    for (Tensor& part : parts) part = pass.layer_input(part);
    DType dtype = parts[0].dtype();
    bool is_plain = last_axis_;
    if (!last_axis_)
      is_plain = std::all_of(parts.begin(), parts.end(), [](const Tensor& p) { return p.layout() == Layout::plain; });
    int64_t width = 0;
    const int along = axis(parts[0].shape());
    for (const Tensor& part : parts) dtype = wider(dtype, part.dtype()), width += part.shape()[along];
    std::vector<int64_t> extents(parts[0].shape().extents().begin(), parts[0].shape().extents().end());
    extents[static_cast<size_t>(along)] = width;
    const Shape shape(extents);
    Tensor joined(pass.device, last_axis_ ? matrix(shape) : shape, dtype, is_plain ? Layout::plain : Layout::nhwc);
    int64_t first = 0;
    for (const Tensor& part : parts) {
      const int64_t count = part.shape()[along];
      run(CopyChannels{.x = seen(pass, pass.cast(part, dtype)), .out = joined, .from = 0, .to = first, .count = count});
      first += count;
    }
    if (last_axis_) joined = joined.reshaped(shape);
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
    const int along = axis(dy.shape());
    const Tensor all_dy = seen(pass, dy);
    int64_t end = dy.shape()[along];
    Tensor dx;
    for (size_t i = branches_.size(); i-- > 0;) {
      const int64_t count = specs[i].shape[along];
      const bool is_plain = last_axis_ || dy.layout() == Layout::plain;
      Tensor part(pass.device, last_axis_ ? matrix(specs[i].shape) : specs[i].shape, dy.dtype(),
                  is_plain ? Layout::plain : Layout::nhwc);
      run(CopyChannels{.x = all_dy, .out = part, .from = end - count, .to = 0, .count = count});
      end -= count;
      if (last_axis_) part = part.reshaped(specs[i].shape);
      part = pass.cast(part, specs[i].dtype);
      if (branches_[i]) part = branches_[i]->backward(pass, part, saved);
      dx = dx.empty() ? part : pass.sum(dx, part);
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
    int64_t width = 0;
    Shape shape;
    for (const LayerPtr& branch : branches_) {
      shape = branch ? branch->output_shape(input) : input;
      width += shape[axis(shape)];
    }
    std::vector<int64_t> extents(shape.extents().begin(), shape.extents().end());
    extents[static_cast<size_t>(axis(shape))] = width;
    return Shape(extents);
  }

 private:
  // As the operation joins them: channels are axis 1.
  Tensor seen(Pass& pass, const Tensor& part) const {
    if (!last_axis_ || part.shape().rank() == 2) return part;
    return pass.operand(part).reshaped(matrix(part.shape()));
  }
  static Shape matrix(const Shape& shape) {
    const int64_t width = shape[shape.rank() - 1];
    return {width ? shape.elements() / width : 0, width};
  }
  int axis(const Shape& shape) const { return last_axis_ ? shape.rank() - 1 : 1; }

  template <class T>
  std::vector<T*> all(auto&& of) {
    std::vector<T*> found;
    for (const LayerPtr& branch : branches_)
      if (branch)
        for (T* item : of(*branch)) found.push_back(item);
    return found;
  }

  std::vector<LayerPtr> branches_;  // null: the input itself
  bool last_axis_;
};

}  // namespace

LayerPtr concat(std::string name, std::vector<LayerPtr> branches, bool last_axis) {
  return std::make_unique<Concat>(std::move(name), std::move(branches), last_axis);
}

}  // namespace halfmark::models
