// Loss scaling by the exact rules of a framework (scaler_spec.h). The scale multiplies the loss. Gradients are checked
// while still scaled: a non-finite one skips the step and lowers the scale. Enough clean steps raise it.
#pragma once

#include <memory>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/scaler_spec.h"

namespace halfmark::models {

class Scaler {
 public:
  explicit Scaler(const ScalerSpec& spec);
  float scale() const { return static_cast<float>(scale_); }  // 1 when the policy has no scaler
  int growth_tracker() const { return tracker_; }             // clean steps that count for the next growth
  bool stopped() const { return stopped_; }  // by an overflow at the floor: the framework's training ends here
  // Unscales every gradient in place (inv = float(1 / double(scale))). true = at least one scaled gradient was not
  // finite and the step must be skipped. A fixed scale always returns false: apex's static scaler does not check.
  bool unscale(Device& device, const std::vector<Param*>& params);
  // The same in two parts.
  void enqueue_unscale(Device& device, const std::vector<Param*>& params);
  bool overflowed() const;  // waits for all work of the device
  // In place of overflowed(): copies the flag to the host, and later waits for that copy only. Not while the device records.
  void enqueue_read();
  bool read();
  bool is_dynamic() const { return spec_.kind == ScalerSpec::Kind::dynamic; }
  Tensor& found_inf() { return found_inf_; }  // the flag on the device; empty before the first unscale
  void update(bool found_inf);

 private:
  double held(double product) const;  // as the framework's variable holds it
  void lower();
  void raise();

  ScalerSpec spec_;
  double scale_;
  int tracker_, overflows_left_;
  bool stopped_ = false;
  Tensor found_inf_;
  std::unique_ptr<kernels::ValueReader> reader_;
};

}  // namespace halfmark::models
