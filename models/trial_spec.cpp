#include "models/trial_spec.h"

#include "kernels/devices.h"

namespace halfmark::models {

TrialSpec TrialSpec::under(const Policy& other) const {
  TrialSpec spec = *this;
  spec.policy = &other;
  return spec;
}

TrialSpec TrialSpec::oracle(Inputs inputs) const {
  TrialSpec spec = under(policy_named("fp64"));
  spec.device = oracle_device(*device);
  spec.round_first = inputs == Inputs::rounded ? &format_of(policy->low) : nullptr;
  // The same scale, exact in fp64, so that values rounded after scaling are rounded in the same way. Such a value is
  // the output gradient of a subject without labels.
  ScalerSpec scale = settings.scaler.value_or(policy->scaler);
  if (scale.kind == ScalerSpec::Kind::dynamic) scale.kind = ScalerSpec::Kind::fixed;
  spec.settings.scaler = scale;
  spec.settings.fused = false, spec.settings.images.reset();  // one reference for all of them
  spec.settings.batchnorm_state.reset(), spec.settings.batchnorm_accumulate.reset();
  return spec;
}

}  // namespace halfmark::models
