// Batch normalisation over [n, h, w], with running statistics.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

// The statistics of a batch: at least fp32 (kernels/ops BatchNorm).
DType statistics_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

class BatchNorm2d : public TappedLayer {
 public:
  // torch.nn.BatchNorm2d: scale 1, shift 0, running mean 0 and variance 1.
  BatchNorm2d(const Init& init, std::string name, int64_t channels, double momentum, double epsilon)
      : TappedLayer(std::move(name)), momentum_(momentum), epsilon_(epsilon) {
    const Shape shape{channels};
    const std::vector<double> ones(static_cast<size_t>(channels), 1.0), zeros(static_cast<size_t>(channels), 0.0);
    scale_ = init.param(this->name() + ".scale", shape, init.policy.norm, ones);
    shift_ = init.param(this->name() + ".shift", shape, init.policy.norm, zeros);
    mean_ = init.state(this->name() + ".running_mean", shape, 0);
    variance_ = init.state(this->name() + ".running_variance", shape, 1);
  }

  std::vector<Param*> params() override { return {&scale_, &shift_}; }
  std::vector<State*> states() override { return {&mean_, &variance_}; }

 private:
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input("batch_norm", x_given);
    const Tensor scale = pass.weight("batch_norm", scale_), shift = pass.weight("batch_norm", shift_);
    Tensor y = pass.fresh(x.shape(), pass.output_dtype("batch_norm", x.dtype()));
    if (!pass.training) {
      HM_CHECK(!saved, name() + ": batch norm in evaluation mode has no backward here");
      run(BatchNormInference{.x = x,
                             .scale = scale,
                             .shift = shift,
                             .running_mean = mean_.value,
                             .running_variance = variance_.value,
                             .out = y,
                             .epsilon = epsilon_});
      return y;
    }
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
                                     .momentum = momentum_,
                                     .epsilon = epsilon_});
    if (saved) {
      saved->keep_spec(x_given), saved->keep(scale);
      saved->keep(mean), saved->keep(variance), saved->keep(x);
    }
    return y;
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor x = saved.take(), variance = saved.take(), mean = saved.take(), scale = saved.take();
    const TensorSpec given = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, x.dtype());
    Tensor dx = pass.fresh(x.shape(), x.dtype());
    pass.gradient(scale_, scale.dtype(), [&](Tensor& dscale) {
      pass.gradient(shift_, scale.dtype(), [&](Tensor& dshift) {
        run(BatchNormBackward{.x = x,
                              .dy = dy,
                              .scale = scale,
                              .mean = mean,
                              .variance = variance,
                              .dx = dx,
                              .dscale = dscale,
                              .dshift = dshift,
                              .epsilon = epsilon_});
      });
    });
    return pass.cast(dx, given.dtype);
  }

  double momentum_, epsilon_;
  Param scale_, shift_;    // [c]
  State mean_, variance_;  // [c]
};

}  // namespace

LayerPtr batchnorm2d(const Init& init, std::string name, int64_t channels, double momentum, double epsilon) {
  return std::make_unique<BatchNorm2d>(init, std::move(name), channels, momentum, epsilon);
}

}  // namespace halfmark::models
