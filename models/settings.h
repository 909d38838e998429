// What a harness may set in a trial besides the policy.
#pragma once

#include <optional>

#include "kernels/number/dtype.h"
#include "models/namespaces.h"
#include "models/policy.h"

namespace halfmark::models {

// What a harness may turn besides the policy.
struct Settings {
  double rate = 0.05, momentum = 0.9, weight_decay = 0;  // of SGD
  double loss_factor = 1;  // the loss is multiplied by it, the rate divided: pushes gradients towards underflow
  double input_scale = 1, input_offset = 0;  // applied to the drawn data
  double batchnorm_momentum = 0.1;
  std::optional<DType> batchnorm_state;  // how running statistics are stored, instead of the policy's dtype
  std::optional<ScalerSpec> scaler;      // instead of the policy's
};

}  // namespace halfmark::models
