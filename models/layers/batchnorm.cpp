// Batch normalisation over all axes but the channels, with running statistics.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/fusible.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

// The statistics of a batch: at least fp32 (kernels/ops BatchNorm).
DType statistics_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

// The operations know images: other ranks are images of the same channels.
Shape image_shape(const Shape& x) {
  switch (x.rank()) {
    case 2:
      return {x[0], x[1], 1, 1};
    case 3:
      return {x[0], x[1], 1, x[2]};
    case 5:
      return {x[0], x[1], x[2] * x[3], x[4]};
    default:
      return x;
  }
}

class BatchNormLayer : public TappedLayer, public FusibleWithRelu {
 public:
  // torch.nn.BatchNorm2d: scale 1, shift 0, running mean 0 and variance 1.
  BatchNormLayer(const Init& init, std::string name, int64_t channels, const BatchNormOptions& options)
      : TappedLayer(std::move(name)), options_(options) {
    const Shape shape{channels};
    const RandomKey own = init.key.child(this->name());
    const bool draws_affine = options_.drawn_start && options_.affine;
    // `usual`, or drawn: uniform between the limits, or normal.
    const auto values = [&](std::string_view what, bool is_drawn, double usual, bool is_uniform, double a, double b) {
      std::vector<double> all(static_cast<size_t>(channels), usual);
      const RandomKey numbers = own.child(what);
      for (size_t c = 0; c < all.size() && is_drawn && init.draws; ++c)
        all[c] = round_to(kBf16, is_uniform ? a + (b - a) * numbers.uniform(c) : a + b * numbers.normal(c));
      return all;
    };
    scale_ = init.param(this->name() + ".scale", shape, init.policy.batch_norm,
                        values("scale", draws_affine, 1, true, 0.5, 1.5));
    shift_ = init.param(this->name() + ".shift", shape, init.policy.batch_norm,
                        values("shift", draws_affine, 0, false, 0, 0.5));
    const DType statistics = statistics_dtype(init.policy, options_.affine);
    mean_ = init.state(this->name() + ".running_mean", shape, statistics,
                       values("mean", options_.drawn_start, 0, false, 0, 0.5));
    variance_ = init.state(this->name() + ".running_variance", shape, statistics,
                           values("variance", options_.drawn_start, 1, true, 0.5, 2));
  }

  std::vector<Param*> params() override {
    if (!options_.affine) return {};  // scale and shift stay 1 and 0
    return {&scale_, &shift_};
  }
  std::vector<State*> states() override { return {&mean_, &variance_}; }

  FusibleWithRelu* fusible_with_relu(const Pass& pass, bool adds) override {
    const bool is_plain = !options_.frozen && !options_.accumulate && !casts_layer_inputs(pass.policy());
    // A branch that is added runs before the norm; if it runs the norm too, the running statistics have to follow the order.
    if (!pass.fuses || !pass.training || !is_plain || (adds && runs_again())) return nullptr;
    // Separate layers would cast what they get.
    const auto keeps = [&](const char* operation) {
      const DType low = pass.policy().low;
      return pass.input_dtype(operation, low) == low && pass.input_dtype(operation, DType::f32) == DType::f32 &&
             pass.output_dtype(operation, low) == low;
    };
    return keeps("relu") && (!adds || keeps("add")) ? this : nullptr;
  }

  Tensor forward_with_relu(Pass& pass, const Tensor& x_given, const RunBranch& branch, Saved* saved) override {
    const Tensor x = as_image(pass, pass.input("batch_norm", x_given));
    const Tensor scale = pass.weight("batch_norm", scale_), shift = pass.weight("batch_norm", shift_);
    const Tensor addend_given = branch ? branch() : Tensor(), addend = branch ? as_image(pass, addend_given) : Tensor();
    const DType norm = pass.output_dtype("batch_norm", x.dtype()), wide = statistics_dtype(x.dtype());
    Tensor y = result(pass, x, branch ? wider(norm, addend.dtype()) : norm, x_given.shape());
    Tensor mean(pass.device, scale.shape(), wide), variance(pass.device, scale.shape(), wide);
    run(FusedBatchNorm{.x = x,
                       .addend = addend,
                       .scale = scale,
                       .shift = shift,
                       .out = y,
                       .mean = mean,
                       .variance = variance,
                       .running_mean = mean_.value,
                       .running_variance = variance_.value,
                       .momentum = options_.momentum,
                       .epsilon = options_.epsilon});
    if (saved) {
      saved->keep_spec(x_given), saved->keep(scale), saved->keep(mean), saved->keep(variance);
      saved->keep(x), saved->keep(y);
      if (branch) saved->keep_spec(addend_given);
    }
    return as_given(pass, y, x_given.shape());
  }

  Tensor backward_with_relu(Pass& pass, Tensor dy_given, Saved& saved, const RunBranchBackward& branch) override {
    const TensorSpec of_addend = branch ? saved.take_spec() : TensorSpec{};
    Tensor y = saved.take(), x = saved.take();
    const Tensor variance = saved.take(), mean = saved.take(), scale = saved.take();
    const TensorSpec given = saved.take_spec();
    Tensor dy = as_image(pass, pass.cast(dy_given, y.dtype())), dx = result(pass, x, x.dtype(), given.shape), daddend;
    if (branch) daddend = result(pass, x, of_addend.dtype, of_addend.shape);
    with_gradients(pass, scale, [&](Tensor& dscale, Tensor& dshift) {
      run(FusedBatchNormBackward{.x = x,
                                 .kept = y,
                                 .dy = dy,
                                 .scale = scale,
                                 .mean = mean,
                                 .variance = variance,
                                 .dx = dx,
                                 .daddend = daddend,
                                 .dscale = dscale,
                                 .dshift = dshift,
                                 .epsilon = options_.epsilon});
    });
    dx = pass.cast(as_given(pass, dx, given.shape), given.dtype);
    if (!branch) return dx;
    dy_given = dy = x = y = {};  // the branch needs their memory
    branch(as_given(pass, std::exchange(daddend, {}), of_addend.shape));
    return dx;
  }

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = as_image(pass, pass.input("batch_norm", x_given));
    const Tensor scale = pass.weight("batch_norm", scale_), shift = pass.weight("batch_norm", shift_);
    Tensor y = result(pass, x, pass.output_dtype("batch_norm", x.dtype()), x_given.shape());
    const bool is_fixed = options_.frozen || !pass.training;
    if (saved) saved->keep_spec(x_given), saved->keep(scale);
    if (is_fixed) {
      run(BatchNormInference{.x = x,
                             .scale = scale,
                             .shift = shift,
                             .running_mean = mean_.value,
                             .running_variance = variance_.value,
                             .out = y,
                             .epsilon = options_.epsilon});
      if (saved) saved->keep(x);
    } else {
      const DType wide = statistics_dtype(x.dtype());
      Tensor mean(pass.device, scale.shape(), wide), variance(pass.device, scale.shape(), wide);
      run(halfmark::kernels::BatchNorm{.x = x,
                                       .scale = scale,
                                       .shift = shift,
                                       .out = y,
                                       .mean = mean,
                                       .variance = variance,
                                       .running_mean = mean_.value,
                                       .running_variance = variance_.value,
                                       .momentum = options_.momentum,
                                       .epsilon = options_.epsilon,
                                       .accumulate = options_.accumulate ? &format_of(*options_.accumulate) : nullptr});
      if (saved) saved->keep(mean), saved->keep(variance), saved->keep(x);
    }
    return as_given(pass, y, x_given.shape());
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor x = saved.take();
    const bool is_fixed = options_.frozen || !pass.training;
    const Tensor variance = is_fixed ? variance_.value : saved.take(), mean = is_fixed ? mean_.value : saved.take();
    const Tensor scale = saved.take();
    const TensorSpec given = saved.take_spec();
    const Tensor dy = as_image(pass, pass.cast(dy_given, x.dtype()));
    Tensor dx = result(pass, x, x.dtype(), given.shape);
    const auto compute = [&](Tensor& dscale, Tensor& dshift) {
      if (is_fixed)
        run(BatchNormInferenceBackward{.x = x,
                                       .dy = dy,
                                       .scale = scale,
                                       .running_mean = mean,
                                       .running_variance = variance,
                                       .dx = dx,
                                       .dscale = dscale,
                                       .dshift = dshift,
                                       .epsilon = options_.epsilon});
      else
        run(BatchNormBackward{.x = x,
                              .dy = dy,
                              .scale = scale,
                              .mean = mean,
                              .variance = variance,
                              .dx = dx,
                              .dscale = dscale,
                              .dshift = dshift,
                              .epsilon = options_.epsilon});
    };
    with_gradients(pass, scale, compute);
    return pass.cast(as_given(pass, dx, given.shape), given.dtype);
  }

  // compute(dscale, dshift), which become those of the parameters.
  template <class Compute>
  void with_gradients(Pass& pass, const Tensor& scale, Compute compute) {
    if (!options_.affine) {
      Tensor dscale(pass.device, scale.shape(), scale.dtype()), dshift(pass.device, scale.shape(), scale.dtype());
      return compute(dscale, dshift);
    }
    pass.gradient(scale_, scale.dtype(), [&](Tensor& dscale) {
      pass.gradient(shift_, scale.dtype(), [&](Tensor& dshift) { compute(dscale, dshift); });
    });
  }

  static Tensor as_image(Pass& pass, const Tensor& x) {
    const Shape image = image_shape(x.shape());
    return x.shape() == image ? x : pass.plain(x).reshaped(image);
  }
  // Plain where it is viewed in another shape: another layout would be copied then.
  static Tensor result(Pass& pass, const Tensor& x, DType dtype, const Shape& given) {
    return x.shape() == given ? pass.fresh(given, dtype) : Tensor(pass.device, x.shape(), dtype);
  }
  static Tensor as_given(Pass& pass, const Tensor& y, const Shape& given) {
    return y.shape() == given ? y : pass.plain(y).reshaped(given);
  }

  BatchNormOptions options_;
  Param scale_, shift_;    // [c]
  State mean_, variance_;  // [c]
};

}  // namespace

LayerPtr batchnorm(const Init& init, std::string name, int64_t channels, const BatchNormOptions& options) {
  return std::make_unique<BatchNormLayer>(init, std::move(name), channels, options);
}

}  // namespace halfmark::models
