// Losses.
#pragma once

#include <string_view>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// loss = mean over rows of -log softmax(logits)[label], with the row maximum subtracted first. As in PyTorch (log_softmax
// and nll_loss), backward needs the logarithms: rounded to fp16, a probability close to 1 is 1, its logarithm is not 0.
struct SoftmaxCrossEntropy {
  static constexpr std::string_view name = "softmax_cross_entropy";
  const Tensor& logits;       // [n, classes]
  const Tensor& labels;       // [n] i32
  Tensor& loss;               // [1]
  Tensor& log_probabilities;  // [n, classes], log softmax(logits), for backward
  void check() const;
  void visit(auto&& v) const {
    v.input("logits", logits), v.input("labels", labels), v.output("loss", loss),
        v.output("log_probabilities", log_probabilities);
  }
};

struct SoftmaxCrossEntropyBackward {  // dlogits = (exp(log_probabilities) - onehot(labels)) dloss / n
  static constexpr std::string_view name = "softmax_cross_entropy_backward";
  const Tensor& log_probabilities;
  const Tensor& labels;
  Tensor& dlogits;
  double dloss = 1;  // includes the loss scale; a value, not part of the choice of row
  void check() const;
  void visit(auto&& v) const {
    v.input("log_probabilities", log_probabilities), v.input("labels", labels), v.output("dlogits", dlogits);
  }
};

}  // namespace halfmark::kernels
