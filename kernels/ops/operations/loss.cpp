#include "kernels/ops/operations/loss.h"

#include <string>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

using namespace operation_checks;

void SoftmaxCrossEntropy::check() const {
  rank(name, "logits", logits, 2), check_same_shape(name, logits, log_probabilities);
  vector_of(name, "labels", labels, logits.shape()[0]), vector_of(name, "loss", loss, 1);
  need(labels.dtype() == DType::i32, name, "labels must be i32");
  need(logits.elements() > 0, name, "the loss of an empty batch is undefined");
}

void SoftmaxCrossEntropyBackward::check() const {
  rank(name, "log_probabilities", log_probabilities, 2), check_same_shape(name, log_probabilities, dlogits);
  vector_of(name, "labels", labels, log_probabilities.shape()[0]);
  need(labels.dtype() == DType::i32, name, "labels must be i32");
}

}  // namespace halfmark::kernels
