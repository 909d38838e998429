// The loss of a classifier: softmax and cross-entropy in one operation, averaged over the batch.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Decomposes like cross_entropy_loss of the frameworks: if the cast rules do not list it, log_softmax sets the dtype.
// Under torch-cuda, half logits give an f32 loss, and dlogits are rounded to half once. Without rules all is stored in
// the logits' dtype and computed in at least fp32.
class CrossEntropy {
 public:
  // logits [n, classes], labels [n] i32 -> loss [1]. Keeps log softmax(logits) for backward, as PyTorch
  // does: a probability close to 1 is 1 when rounded to fp16, and the gradient at its label would be 0.
  Tensor forward(Pass& pass, const Tensor& logits, const Tensor& labels);
  // dlogits in the logits' dtype, for the gradient `dloss` of
  // the loss. dloss is first rounded to the dtype of the loss.
  Tensor backward(Pass& pass, double dloss);

 private:
  Tensor log_probabilities_, labels_;
  DType given_ = DType::f32, computed_ = DType::f32, loss_ = DType::f32;
};

}  // namespace halfmark::models
