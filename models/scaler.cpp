// Unscaling as in PyTorch torch/amp/grad_scaler.py (_unscale_grads_) and aten/src/ATen/native/cuda/AmpKernels.cu. One rule of
// the scale with the parameters of ScalerSpec covers all rows.
#include "models/scaler.h"

#include <algorithm>
#include <cmath>

#include "kernels/number/error.h"

namespace halfmark::models {

Scaler::Scaler(const ScalerSpec& spec)
    : spec_(spec),
      scale_(spec.kind == ScalerSpec::Kind::none ? 1 : held(spec.initial)),
      tracker_(-spec.uncounted),
      overflows_left_(spec.hysteresis) {
  HM_CHECK(spec.kind != ScalerSpec::Kind::dynamic || (spec.growth > 1 && spec.backoff < 1 && spec.interval > 0),
           "a dynamic loss scale needs growth > 1, backoff < 1 and a positive interval");
  HM_CHECK(spec.uncounted >= 0 && spec.hysteresis >= 1 && spec.floor >= 0 && spec.cap > spec.floor,
           "a loss scale needs a hysteresis of at least 1 and a floor below its cap");
}

bool Scaler::unscale(Device& device, const std::vector<Param*>& params) {
  enqueue_unscale(device, params);
  return overflowed();
}

void Scaler::enqueue_unscale(Device& device, const std::vector<Param*>& params) {
  if (spec_.kind == ScalerSpec::Kind::none) return;
  PurposeScope purpose(Purpose::other);
  if (found_inf_.empty()) found_inf_ = Tensor(device, Shape{1}, DType::f32);
  found_inf_.fill(0);
  const auto inverse = static_cast<float>(1 / scale_);
  Tensors gradients;
  for (const Param* param : params)
    if (!param->grad.empty()) gradients.push_back(param->grad);
  if (!gradients.empty()) run(Unscale{.gradients = gradients, .found_inf = found_inf_, .inverse_scale = inverse});
}

void Scaler::enqueue_read() {
  if (!is_dynamic()) return;
  if (!reader_) reader_ = found_inf_.device().value_reader();
  reader_->enqueue(found_inf_);
}

bool Scaler::read() { return is_dynamic() && reader_->wait() != 0; }

bool Scaler::overflowed() const { return is_dynamic() && found_inf_.values()[0] != 0; }

// Factors are doubles: a product with a variable in fp32 is rounded once.
double Scaler::held(double product) const {
  return spec_.held_in_double ? product : static_cast<double>(static_cast<float>(product));
}

void Scaler::lower() {
  tracker_ = -spec_.uncounted;
  if (overflows_left_ > 1) {
    --overflows_left_;
    return;
  }
  if (spec_.stops_at_floor && scale_ <= spec_.floor) {
    stopped_ = true;
    return;
  }
  scale_ = std::max(held(scale_ * spec_.backoff), spec_.floor);
}

void Scaler::raise() {
  if (spec_.restored == ScalerSpec::Restored::at_growth) overflows_left_ = spec_.hysteresis;
  tracker_ = 0;
  const double grown = std::min(held(scale_ * spec_.growth), spec_.cap);
  if (spec_.grows_to_infinity || std::isfinite(grown)) scale_ = grown;
}

void Scaler::update(bool found_inf) {
  if (spec_.kind != ScalerSpec::Kind::dynamic) return;
  if (found_inf) return lower();
  if (spec_.restored == ScalerSpec::Restored::at_clean_step) overflows_left_ = spec_.hysteresis;
  if (++tracker_ == spec_.interval) raise();
}

}  // namespace halfmark::models
