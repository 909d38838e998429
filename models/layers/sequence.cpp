// Softmax, dropout, and changes of shape between images, sequences and vectors.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class SoftmaxLayer : public TappedLayer {
 public:
  using TappedLayer::TappedLayer;

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.operand(pass.input("softmax", x_given));
    Tensor y(pass.device, x.shape(), pass.output_dtype("softmax", x.dtype()));
    run(Softmax{.x = x, .out = y});
    if (saved) saved->keep_spec(x_given), saved->keep(y);
    return y;
  }
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor y = saved.take(), dy = pass.operand(pass.cast(dy_given, y.dtype()));
    Tensor dx(pass.device, y.shape(), y.dtype());
    run(SoftmaxBackward{.y = y, .dy = dy, .dx = dx});
    return pass.cast(dx, saved.take_spec().dtype);
  }
};

class DropoutLayer : public TappedLayer {
 public:
  DropoutLayer(std::string name, double p, bool channels) : TappedLayer(std::move(name)), p_(p), channels_(channels) {}

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    if (!pass.training) return x_given;
    const Tensor x = readable(pass, x_given);
    const Shape& shape = x.shape();
    Tensor mask(pass.device, channels_ ? Shape{shape[0], shape[1]} : shape, DType::u8);
    Tensor y(pass.device, shape, x.dtype(), x.layout());
    run(Dropout{.x = x, .mask = mask, .out = y, .p = p_, .seed = pass.key.child(name()).value()});
    if (saved) saved->keep(mask);
    return y;
  }
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    if (!pass.training) return dy_given;
    const Tensor mask = saved.take(), dy = readable(pass, dy_given);
    Tensor dx(pass.device, dy.shape(), dy.dtype(), dy.layout());
    run(DropoutBackward{.dy = dy, .mask = mask, .dx = dx, .p = p_});
    return dx;
  }

  // Whole channels are dropped in nhwc too, on devices that prefer it.
  Tensor readable(Pass& pass, const Tensor& x) const {
    const bool stays = channels_ && x.layout() == Layout::nhwc && pass.device.image_layout(x.dtype()) == Layout::nhwc;
    return stays ? x : pass.operand(x);
  }

  double p_;
  bool channels_;
};

class ToSequence : public TappedLayer {
 public:
  using TappedLayer::TappedLayer;
  Shape output_shape(const Shape& x) const override { return {x[0], x[3], x[1] * x[2]}; }

 private:
  static constexpr AxisOrder kOrder{{0, 3, 1, 2}, 4};

  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.operand(x_given);
    Tensor y(pass.device, permuted(x.shape(), kOrder), x.dtype());
    run(Permute{.x = x, .out = y, .order = kOrder});
    if (saved) saved->keep_spec(x);
    return y.reshaped(output_shape(x.shape()));
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    Tensor dx(pass.device, x.shape, dy.dtype());
    run(Permute{.x = pass.operand(dy).reshaped(permuted(x.shape, kOrder)), .out = dx, .order = inverse(kOrder)});
    return pass.cast(dx, x.dtype);
  }
};

class ToAnchors : public TappedLayer {
 public:
  ToAnchors(std::string name, int64_t anchors) : TappedLayer(std::move(name)), anchors_(anchors) {}
  Shape output_shape(const Shape& x) const override { return {x[0], x[2] * x[3] * anchors_, x[1] / anchors_}; }

 private:
  static constexpr AxisOrder kOrder{{0, 3, 4, 1, 2}, 5};
  Shape split(const Shape& x) const { return {x[0], anchors_, x[1] / anchors_, x[2], x[3]}; }

  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.operand(x_given).reshaped(split(x_given.shape()));
    Tensor y(pass.device, permuted(x.shape(), kOrder), x.dtype());
    run(Permute{.x = x, .out = y, .order = kOrder});
    if (saved) saved->keep_spec(x_given);
    return y.reshaped(output_shape(x_given.shape()));
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    Tensor dx(pass.device, split(x.shape), dy.dtype());
    run(Permute{.x = pass.operand(dy).reshaped(permuted(split(x.shape), kOrder)), .out = dx, .order = inverse(kOrder)});
    return pass.cast(dx.reshaped(x.shape), x.dtype);
  }

  int64_t anchors_;
};

class TakeStep : public TappedLayer {
 public:
  TakeStep(std::string name, int64_t step) : TappedLayer(std::move(name)), step_(step) {}
  Shape output_shape(const Shape& x) const override { return {x[0], x[2]}; }

 private:
  int64_t place(const Shape& x) const { return step_ < 0 ? x[1] + step_ : step_; }

  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.operand(x_given);
    Tensor y(pass.device, {x.shape()[0], 1, x.shape()[2]}, x.dtype());
    run(CopyChannels{.x = x, .out = y, .from = place(x.shape()), .to = 0, .count = 1});
    if (saved) saved->keep_spec(x);
    return y.reshaped(output_shape(x.shape()));
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    Tensor dx = Tensor::zeros(pass.device, x.shape, dy.dtype());
    run(CopyChannels{.x = pass.operand(dy).reshaped({x.shape[0], 1, x.shape[2]}),
                     .out = dx,
                     .from = 0,
                     .to = place(x.shape),
                     .count = 1});
    return pass.cast(dx, x.dtype);
  }

  int64_t step_;
};

}  // namespace

LayerPtr softmax(std::string name) { return std::make_unique<SoftmaxLayer>(std::move(name)); }
LayerPtr dropout(std::string name, double p, bool channels) {
  return std::make_unique<DropoutLayer>(std::move(name), p, channels);
}
LayerPtr to_anchors(std::string name, int64_t anchors) { return std::make_unique<ToAnchors>(std::move(name), anchors); }
LayerPtr to_sequence(std::string name) { return std::make_unique<ToSequence>(std::move(name)); }
LayerPtr take_step(std::string name, int64_t step) { return std::make_unique<TakeStep>(std::move(name), step); }

}  // namespace halfmark::models
