// Convolution with stride, padding, dilation and groups. If the pass fuses, convolution, bias and a ReLU behind it are one operation:
// the result is rounded once.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layers/bias.h"
#include "models/layers/fusible.h"
#include "models/layers/tapped_layer.h"
#include "models/layers/weight.h"

namespace halfmark::models {
namespace {

class Convolution : public TappedLayer, public FusibleWithRelu {
 public:
  // torch.nn.Conv2d.reset_parameters: as Linear, with fan_in = in / groups * area of the kernel.
  Convolution(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel, Window window, int groups,
              bool with_bias, const Start& start, bool weight_norm)
      : TappedLayer(std::move(name)),
        window_(window),
        groups_(groups),
        // PyTorch counts the outputs of all groups for fan_out (torch/nn/init.py, _calculate_fan_in_and_fan_out).
        weight_(init, this->name(), {out, in / groups, kernel.h, kernel.w}, in / groups * area(kernel),
                out * area(kernel), start, weight_norm) {
    if (with_bias) bias_ = Bias(init, this->name(), out, in / groups * area(kernel), start);
  }

  std::vector<Param*> params() override {
    std::vector<Param*> all = weight_.params();
    bias_.append_to(all);
    return all;
  }
  // Every output element is a sum of in / groups * area of the kernel products; those with padding count, as usual.
  double forward_flops(const Shape& input) const override {
    const Shape out = output_shape(input), w = weight_.shape();
    return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
  }
  Shape output_shape(const Shape& x) const override {
    const Shape& w = weight_.shape();
    return {x[0], w[0], window_extent(x[2], w[2], window_.stride_h, window_.pad_h, window_.dilation_h),
            window_extent(x[3], w[3], window_.stride_w, window_.pad_w, window_.dilation_w)};
  }

  FusibleWithRelu* fusible_with_relu(const Pass& pass, bool adds) override {
    return !adds && can_fuse(pass) ? this : nullptr;
  }
  Tensor forward_with_relu(Pass& pass, const Tensor& x, const RunBranch& branch, Saved* saved) override {
    HM_CHECK(!branch, "convolution '" + name() + "' adds no branch");
    Tensor y = convolved(pass, x, saved, true);
    if (saved) saved->keep(y);
    return y;
  }
  Tensor backward_with_relu(Pass& pass, Tensor dy, Saved& saved, const RunBranchBackward&) override {
    const Tensor kept = saved.take();
    dy = pass.cast(dy, kept.dtype());
    Tensor dz = pass.fresh(kept.shape(), kept.dtype());
    run(ReluBackward{.kept = kept, .dy = dy, .dx = dz});
    if (pass.tap) pass.look("gradient/" + name(), dz);
    return differentiate(pass, dz, saved);
  }

 private:
  static int64_t area(Size2d kernel) { return static_cast<int64_t>(kernel.h) * kernel.w; }
  bool can_fuse(const Pass& pass) const { return pass.fuses && !bias_.is_none() && !casts_layer_inputs(pass.policy()); }

  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override { return convolved(pass, x, saved, false); }

  Tensor convolved(Pass& pass, const Tensor& x, Saved* saved, bool relu) {
    if (saved) saved->keep_spec(x);
    const Tensor a = pass.input("conv2d", x), w = weight_.forward(pass, "conv2d", saved);
    Tensor y = pass.fresh(output_shape(x.shape()), pass.output_dtype("conv2d", a.dtype()));
    const Tensor bias = bias_.is_none() ? Tensor() : bias_.value(pass, "conv2d");
    run_biased(pass, FusedConv2d{.x = a,
                                 .w = w,
                                 .bias = bias,
                                 .out = y,
                                 .relu = relu,
                                 .window = window_,
                                 .groups = groups_,
                                 .math = pass.math(a.dtype())});
    if (saved) saved->keep(a);
    return y;
  }

  void run_biased(Pass& pass, const FusedConv2d& op) {
    if (can_fuse(pass) && has_row_like_product(op)) return run(op);
    run(op.product(op.out));
    if (!op.bias.empty()) run(AddBias{.x = op.out, .bias = op.bias, .out = op.out});
    if (op.relu) run(Activation<activations::Relu>{.x = op.out, .out = op.out});
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor a = saved.take(), w = saved.take();
    const Tensor dy = pass.cast(dy_given, a.dtype());
    const Math math = pass.math(a.dtype());
    weight_.gradient(pass, w.dtype(), saved, [&](Tensor& dw) {
      run(Conv2dBackwardWeights{.x = a, .dy = dy, .dw = dw, .window = window_, .groups = groups_, .math = math});
    });
    const TensorSpec x = saved.take_spec();
    bias_.gradient(pass, w.dtype(), dy);
    Tensor dx = pass.fresh(x.shape, a.dtype());
    run(Conv2dBackwardData{.dy = dy, .w = w, .dx = dx, .window = window_, .groups = groups_, .math = math});
    return pass.cast(dx, x.dtype);
  }

  // Not if the device has no code for it, or only emulated code, while it has a convolution of real speed.
  static bool has_row_like_product(const FusedConv2d& op) {
    using kernels::Speed;
    try {
      return chosen(op).speed == Speed::real || chosen(op.product(op.out)).speed == Speed::emulated;
    } catch (const kernels::Unsupported&) {
      return false;
    }
  }

  Window window_;
  int groups_;
  Weight weight_;  // [out, in / groups, kernel.h, kernel.w]
  Bias bias_;
};

}  // namespace

LayerPtr conv2d(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel, Window window, int groups,
                bool bias, const Start& start, bool weight_norm) {
  return std::make_unique<Convolution>(init, std::move(name), in, out, kernel, window, groups, bias, start,
                                       weight_norm);
}

}  // namespace halfmark::models
