// Loss scaling with PyTorch's exact rules (amp_semantics: GradScaler): the scale multiplies the loss, gradients are
// checked while still scaled, a non-finite one skips the step and halves the scale, `interval` clean steps double it.
#pragma once

#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

class Scaler {
 public:
  explicit Scaler(const ScalerSpec& spec);
  float scale() const { return scale_; }  // 1 when the policy has no scaler
  int growth_tracker() const { return tracker_; }
  // Unscales every gradient in place (inv = float(1 / double(scale))). true = at least one scaled gradient was not
  // finite and the step must be skipped; a fixed scale never says so, as apex's static scaler never checks.
  bool unscale(Device& device, const std::vector<Param*>& params);
  void update(bool found_inf);  // growth only if the product is finite in fp32; no lower bound

 private:
  ScalerSpec spec_;
  float scale_;
  int tracker_ = 0;
  Tensor found_inf_;
};

}  // namespace halfmark::models
