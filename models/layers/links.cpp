// Layers that refer to earlier ones by name: one that runs again, a branch whose result is kept, and where it is joined.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class Again : public Layer {  // the tap sees the tensors under the name of the layer that runs again
 public:
  Again(std::string name, Layer& layer) : Layer(std::move(name)), layer_(layer) { layer.set_runs_again(); }
  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override { return layer_.forward(pass, x, saved); }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override { return layer_.backward(pass, dy, saved); }
  double forward_flops(const Shape& input) const override { return layer_.forward_flops(input); }
  Shape output_shape(const Shape& input) const override { return layer_.output_shape(input); }

 private:
  Layer& layer_;  // its parameters are among those of the layer that has them
};

class Side : public Layer {  // y = x; the branch's result waits in the pass for the layer that joins it
 public:
  Side(std::string name, LayerPtr branch) : Layer(std::move(name)), branch_(std::move(branch)) {}
  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) override {
    pass.leave(name(), branch_->forward(pass, x, saved));
    return x;
  }
  Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) override {
    return pass.sum(dy, branch_->backward(pass, pass.collect(name()), saved));
  }
  std::vector<Param*> params() override { return branch_->params(); }
  std::vector<State*> states() override { return branch_->states(); }
  double forward_flops(const Shape& input) const override { return branch_->forward_flops(input); }

 private:
  LayerPtr branch_;
};

// x + z or the rows or channels of x and then those of z, of the result z of a side branch.
class Join : public TappedLayer {
 public:
  Join(std::string name, std::string side, Shape of_side, bool adds)
      : TappedLayer(std::move(name)), side_(std::move(side)), of_side_(of_side), adds_(adds) {}
  Shape output_shape(const Shape& x) const override {
    if (adds_) return x;
    std::vector<int64_t> extents(x.extents().begin(), x.extents().end());
    extents[1] += of_side_[1];
    return Shape(extents);
  }

 private:
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor z_given = pass.collect(side_);
    if (saved) saved->keep_spec(x), saved->keep_spec(z_given);
    const Tensor z = pass.layer_input(z_given);
    if (adds_) return pass.sum(pass.input("add", x), pass.input("add", z));
    const DType dtype = wider(x.dtype(), z.dtype());
    Tensor joined(pass.device, output_shape(x.shape()), dtype);
    const int64_t first = x.shape()[1], second = z.shape()[1];
    run(CopyChannels{.x = pass.operand(pass.cast(x, dtype)), .out = joined, .from = 0, .to = 0, .count = first});
    run(CopyChannels{.x = pass.operand(pass.cast(z, dtype)), .out = joined, .from = 0, .to = first, .count = second});
    return joined;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec z = saved.take_spec(), x = saved.take_spec();
    if (adds_) {
      pass.leave(side_, pass.cast(dy, z.dtype));
      return pass.cast(dy, x.dtype);
    }
    const Tensor all = pass.operand(dy);
    Tensor dx(pass.device, x.shape, dy.dtype()), dz(pass.device, z.shape, dy.dtype());
    run(CopyChannels{.x = all, .out = dx, .from = 0, .to = 0, .count = x.shape[1]});
    run(CopyChannels{.x = all, .out = dz, .from = x.shape[1], .to = 0, .count = z.shape[1]});
    pass.leave(side_, pass.cast(dz, z.dtype));
    return pass.cast(dx, x.dtype);
  }

  std::string side_;
  Shape of_side_;
  bool adds_;
};

}  // namespace

LayerPtr again(std::string name, Layer& layer) { return std::make_unique<Again>(std::move(name), layer); }
LayerPtr side(std::string name, LayerPtr branch) { return std::make_unique<Side>(std::move(name), std::move(branch)); }
LayerPtr join(std::string name, std::string side, const Shape& of_side, bool adds) {
  return std::make_unique<Join>(std::move(name), std::move(side), of_side, adds);
}

}  // namespace halfmark::models
