// Pooling: the maximum or the mean of a window, or of the whole image.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

Shape pooled(const Shape& x, int kernel_h, int kernel_w, const Window& window) {
  return {x[0], x[1], window_extent(x[2], kernel_h, window.stride_h, window.pad_h, 1),
          window_extent(x[3], kernel_w, window.stride_w, window.pad_w, 1)};
}

class MaxPool : public TappedLayer {
 public:
  MaxPool(std::string name, Size2d kernel, const Window& window)
      : TappedLayer(std::move(name)), kernel_(kernel), window_(window) {}
  Shape output_shape(const Shape& x) const override { return pooled(x, kernel_.h, kernel_.w, window_); }

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input("max_pool2d", x_given);
    const Shape shape = output_shape(x.shape());
    Tensor y = pass.fresh(shape, pass.output_dtype("max_pool2d", x.dtype()));
    Tensor indices = saved ? pass.fresh(shape, DType::u8) : Tensor();
    run(MaxPool2d{
        .x = x, .out = y, .indices = indices, .kernel_h = kernel_.h, .kernel_w = kernel_.w, .window = window_});
    if (saved) saved->keep_spec(x_given), saved->keep_spec(x), saved->keep(indices);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor indices = saved.take();
    const TensorSpec x = saved.take_spec(), given = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, x.dtype);
    Tensor dx = pass.fresh(x.shape, x.dtype);
    run(MaxPool2dBackward{
        .dy = dy, .indices = indices, .dx = dx, .kernel_h = kernel_.h, .kernel_w = kernel_.w, .window = window_});
    return pass.cast(dx, given.dtype);
  }

  Size2d kernel_;
  Window window_;
};

class AvgPool : public TappedLayer {
 public:
  // kernel 0: the whole image.
  AvgPool(std::string name, Size2d kernel, const Window& window)
      : TappedLayer(std::move(name)), kernel_(kernel), window_(window) {}
  Shape output_shape(const Shape& x) const override { return pooled(x, height(x), width(x), window_); }

 private:
  int height(const Shape& x) const { return kernel_.h ? kernel_.h : static_cast<int>(x[2]); }
  int width(const Shape& x) const { return kernel_.w ? kernel_.w : static_cast<int>(x[3]); }
  std::string_view operation() const { return kernel_.h ? "avg_pool2d" : "adaptive_avg_pool2d"; }

  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input(operation(), x_given);
    Tensor y = pass.fresh(output_shape(x.shape()), pass.output_dtype(operation(), x.dtype()));
    run(AvgPool2d{.x = x, .out = y, .kernel_h = height(x.shape()), .kernel_w = width(x.shape()), .window = window_});
    if (saved) saved->keep_spec(x_given), saved->keep_spec(x);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const TensorSpec x = saved.take_spec(), given = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, x.dtype);
    Tensor dx = pass.fresh(x.shape, x.dtype);
    run(AvgPool2dBackward{
        .dy = dy, .dx = dx, .kernel_h = height(x.shape), .kernel_w = width(x.shape), .window = window_});
    return pass.cast(dx, given.dtype);
  }

  Size2d kernel_;
  Window window_;
};

}  // namespace

LayerPtr max_pool2d(std::string name, Size2d kernel, const Window& window) {
  return std::make_unique<MaxPool>(std::move(name), kernel, window);
}
LayerPtr avg_pool2d(std::string name, Size2d kernel, const Window& window) {
  return std::make_unique<AvgPool>(std::move(name), kernel, window);
}
LayerPtr global_avg_pool2d(std::string name) { return std::make_unique<AvgPool>(std::move(name), 0, Window()); }

}  // namespace halfmark::models
