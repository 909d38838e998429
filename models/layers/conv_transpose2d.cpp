// Transposed convolution: forward is the gradient of a convolution with respect to its input, and the other way round.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/bias.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class TransposedConvolution : public TappedLayer {
 public:
  // torch.nn.ConvTranspose2d.reset_parameters: fan_in is counted from axis 1 of the weight, so it is the number of output
  // channels of a group times the area of the kernel.
  TransposedConvolution(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel,
                        const Window& window, Size2d output_padding, int groups, bool with_bias, const Start& start)
      : TappedLayer(std::move(name)), window_(window), output_padding_(output_padding), groups_(groups) {
    const int64_t out_of_group = out / groups, area = static_cast<int64_t>(kernel.h) * kernel.w;
    const int64_t fan_in = out_of_group * area;
    weight_ =
        weight_of(init, this->name() + ".weight", {in, out_of_group, kernel.h, kernel.w}, fan_in, in * area, start);
    if (with_bias) bias_ = Bias(init, this->name(), out, fan_in, start);
  }

  std::vector<Param*> params() override {
    std::vector<Param*> all = {&weight_};
    bias_.append_to(all);
    return all;
  }
  // Every element of the input meets out / groups times the area of the kernel weights; those that fall into the padding
  // count, as usual.
  double forward_flops(const Shape& input) const override {
    const Shape w = weight_.value.shape();
    return 2.0 * static_cast<double>(input.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
  }
  Shape output_shape(const Shape& x) const override {
    const Shape& w = weight_.value.shape();
    const auto extent = [](int64_t n, int64_t kernel, int stride, int pad, int dilation, int more) {
      return (n - 1) * stride - 2 * pad + dilation * (kernel - 1) + more + 1;
    };
    return {x[0], w[1] * groups_,
            extent(x[2], w[2], window_.stride_h, window_.pad_h, window_.dilation_h, output_padding_.h),
            extent(x[3], w[3], window_.stride_w, window_.pad_w, window_.dilation_w, output_padding_.w)};
  }

 private:
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor a = pass.input("conv_transpose2d", x), w = pass.weight("conv_transpose2d", weight_);
    Tensor y = pass.fresh(output_shape(x.shape()), pass.output_dtype("conv_transpose2d", a.dtype()));
    run(Conv2dBackwardData{
        .dy = a, .w = w, .dx = y, .window = window_, .groups = groups_, .math = pass.math(a.dtype())});
    bias_.add(pass, "conv_transpose2d", y);
    if (saved) saved->keep_spec(x), saved->keep(w), saved->keep(a);
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor a = saved.take(), w = saved.take();
    const TensorSpec x = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, a.dtype());
    const Math math = pass.math(a.dtype());
    pass.gradient(weight_, w.dtype(), [&](Tensor& dw) {
      run(Conv2dBackwardWeights{.x = dy, .dy = a, .dw = dw, .window = window_, .groups = groups_, .math = math});
    });
    bias_.gradient(pass, w.dtype(), dy);
    Tensor dx = pass.fresh(x.shape, a.dtype());
    run(Conv2d{.x = dy, .w = w, .out = dx, .window = window_, .groups = groups_, .math = math});
    return pass.cast(dx, x.dtype);
  }

  Window window_;
  Size2d output_padding_;
  int groups_;
  Param weight_;  // [in, out / groups, kernel.h, kernel.w]
  Bias bias_;
};

}  // namespace

LayerPtr conv_transpose2d(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel,
                          const Window& window, Size2d output_padding, int groups, bool bias, const Start& start) {
  return std::make_unique<TransposedConvolution>(init, std::move(name), in, out, kernel, window, output_padding, groups,
                                                 bias, start);
}

}  // namespace halfmark::models
