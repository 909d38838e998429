// The base class of losses.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The loss is a mean, as with PyTorch's reduction "mean". One forward, then one backward; forward keeps what backward
// needs. Casts follow the policy's rules for PyTorch's name of the loss; without rules all is stored in the output's dtype
// and computed in at least fp32. Sums over elements are wider than fp16 for every dtype.
class Loss {
 public:
  virtual ~Loss() = default;
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;

  virtual Tensor forward(Pass& pass, const Tensor& output, const Tensor& targets) = 0;  // -> [1]
  // The gradient with respect to the output, in its dtype, for the gradient `dloss` of the loss, which is first rounded to
  // the dtype of the loss.
  virtual Tensor backward(Pass& pass, double dloss) = 0;
};

}  // namespace halfmark::models
