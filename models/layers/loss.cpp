#include "models/layers/loss.h"

#include <utility>

#include "kernels/number/error.h"

namespace halfmark::models {

Tensor CrossEntropy::forward(Pass& pass, const Tensor& logits, const Tensor& labels) {
  const Tensor x = pass.plain(pass.input("cross_entropy_loss", logits));
  given_ = logits.dtype(), computed_ = x.dtype(), labels_ = labels;
  loss_ = pass.output_dtype("log_softmax", computed_);
  log_probabilities_ = Tensor(pass.device, x.shape(), loss_);
  Tensor loss(pass.device, Shape{1}, loss_);
  run(SoftmaxCrossEntropy{.logits = x, .labels = labels, .loss = loss, .log_probabilities = log_probabilities_});
  log_probabilities_.set_purpose(Purpose::saved);
  pass.look("activation/log_probabilities", log_probabilities_);
  pass.look("activation/loss", loss);
  return loss;
}

Tensor CrossEntropy::backward(Pass& pass, double dloss) {
  HM_CHECK(!log_probabilities_.empty(), "cross-entropy: backward without forward");
  const Tensor log_probabilities = std::exchange(log_probabilities_, {}), labels = std::exchange(labels_, {});
  Tensor dlogits(pass.device, log_probabilities.shape(), computed_);
  run(SoftmaxCrossEntropyBackward{.log_probabilities = log_probabilities,
                                  .labels = labels,
                                  .dlogits = dlogits,
                                  .dloss = round_to(format_of(loss_), dloss)});
  return pass.cast(dlogits, given_);
}

}  // namespace halfmark::models
