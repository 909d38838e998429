// Loss scaling by PyTorch's exact rules (amp_semantics: GradScaler). The scale multiplies the loss. Gradients are
// checked while still scaled: a non-finite one skips the step and halves the scale. `interval` clean steps double it.
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
  // finite and the step must be skipped. A fixed scale always returns false: apex's static scaler does not check.
  bool unscale(Device& device, const std::vector<Param*>& params);
  Tensor& found_inf() { return found_inf_; }  // the flag on the device; empty before the first unscale
  void update(bool found_inf);  // grows only if the product is finite in fp32; the scale has no lower bound

 private:
  ScalerSpec spec_;
  float scale_;
  int tracker_ = 0;
  Tensor found_inf_;
};

}  // namespace halfmark::models
