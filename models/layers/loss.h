// The head of a classifier: softmax and cross-entropy in one, averaged over the batch.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Decomposes as the frameworks' cross_entropy_loss does: where it is not listed itself, log_softmax decides the dtype.
// Under torch-cuda half logits give an f32 loss and dlogits return to half once; without rules all is stored in the
// logits' dtype and computed wide inside.
class CrossEntropy {
 public:
  // loss [1]; keeps the probabilities for backward. labels: [n] i32.
  Tensor forward(Pass& pass, const Tensor& logits, const Tensor& labels);
  // dlogits in the logits' dtype, for the gradient `dloss` of the loss (which a loss of a narrow dtype rounds to that
  // dtype).
  Tensor backward(Pass& pass, double dloss);

 private:
  Tensor probabilities_, labels_;
  DType given_ = DType::f32, computed_ = DType::f32, loss_ = DType::f32;
};

}  // namespace halfmark::models
