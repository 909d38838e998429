// Optimizers. Their state has Purpose::optimizer; arithmetic is fp32 for every storage dtype (kernels/ops SgdStep).
#pragma once

#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

class Sgd {
 public:
  Sgd(double rate, double momentum, double weight_decay = 0)
      : rate_(rate), momentum_(momentum), weight_decay_(weight_decay) {}
  void step(const std::vector<Param*>& params);  // updates the master copy if there is one and rounds it into the value
  // In the order of the parameters; an entry is empty until its first step with momentum.
  const std::vector<Tensor>& velocity() const { return velocity_; }

  // The state between steps; empty tensors before the first step.
  std::vector<Tensor>& velocities() { return velocity_; }

 private:
  double rate_, momentum_, weight_decay_;
  std::vector<Tensor> velocity_;
};

}  // namespace halfmark::models
