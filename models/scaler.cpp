// Loss scaling as in PyTorch torch/amp/grad_scaler.py (_unscale_grads_, update) and
// aten/src/ATen/native/cuda/AmpKernels.cu.
#include "models/scaler.h"

#include <cmath>

#include "kernels/number/error.h"

namespace halfmark::models {

Scaler::Scaler(const ScalerSpec& spec)
    : spec_(spec), scale_(spec.kind == ScalerSpec::Kind::none ? 1.0f : static_cast<float>(spec.initial)) {
  HM_CHECK(spec.kind != ScalerSpec::Kind::dynamic || (spec.growth > 1 && spec.backoff < 1 && spec.interval > 0),
           "a dynamic loss scale needs growth > 1, backoff < 1 and a positive interval");
}

bool Scaler::unscale(Device& device, const std::vector<Param*>& params) {
  if (spec_.kind == ScalerSpec::Kind::none) return false;
  PurposeScope purpose(Purpose::other);
  if (found_inf_.empty()) found_inf_ = Tensor(device, Shape{1}, DType::f32);
  found_inf_.fill(0);
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale_));
  for (Param* param : params) {
    if (param->grad.empty()) continue;
    run(Unscale{.gradient = param->grad, .found_inf = found_inf_, .inverse_scale = inverse});
  }
  return spec_.kind == ScalerSpec::Kind::dynamic && found_inf_.values()[0] != 0;
}

void Scaler::update(bool found_inf) {
  if (spec_.kind != ScalerSpec::Kind::dynamic) return;
  // PyTorch's scale is an fp32 tensor of one element and its factors are doubles: the product is rounded once.
  if (found_inf) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * spec_.backoff);
    tracker_ = 0;
    return;
  }
  if (++tracker_ != spec_.interval) return;
  const auto grown = static_cast<float>(static_cast<double>(scale_) * spec_.growth);
  if (std::isfinite(grown)) scale_ = grown;
  tracker_ = 0;
}

}  // namespace halfmark::models
