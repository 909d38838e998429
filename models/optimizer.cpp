// Stochastic gradient descent with the momentum of torch.optim.SGD:
// the velocity starts at zero, so the first step is the gradient.
#include "models/optimizer.h"

#include "kernels/number/error.h"

namespace halfmark::models {

void Sgd::step(const std::vector<Param*>& params) {
  velocity_.resize(params.size());
  Tensor none;
  for (size_t i = 0; i < params.size(); ++i) {
    Param& param = *params[i];
    if (param.grad.empty()) continue;
    Tensor& updated = param.master.empty() ? param.value : param.master;
    if (momentum_ != 0 && velocity_[i].empty()) {
      PurposeScope purpose(Purpose::optimizer);
      velocity_[i] = Tensor::zeros(updated.device(), updated.shape(), updated.dtype());
    }
    run(SgdStep{.parameter = updated,
                .gradient = param.grad,
                .velocity = velocity_[i],
                .low = param.master.empty() ? none : param.value,
                .rate = rate_,
                .momentum = momentum_,
                .weight_decay = weight_decay_});
  }
}

}  // namespace halfmark::models
