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

namespace {

void check_labelled(std::string_view name, const Tensor& logits, const Tensor& labels, const Tensor& weights,
                    double smoothing) {
  const Shape& shape = logits.shape();
  need(shape.rank() == 2 || shape.rank() == 4, name, "logits must have rank 2 or 4, not shape " + shape.text());
  const Shape positions = shape.rank() == 2 ? Shape{shape[0]} : Shape{shape[0], shape[2], shape[3]};
  need(labels.shape() == positions, name,
       "labels must be of shape " + positions.text() + ", not " + labels.shape().text());
  need(labels.dtype() == DType::i32, name, "labels must be i32");
  if (!weights.empty()) vector_of(name, "weights", weights, shape[1]);
  need(smoothing >= 0 && smoothing <= 1, name, "the smoothing must be between 0 and 1");
  need(shape[1] > 0, name, "there are no classes");
}

void check_sequences(std::string_view name, const Tensor& scores, const Tensor& targets, const Tensor& alpha,
                     int blank) {
  rank(name, "the scores", scores, 3), rank(name, "targets", targets, 2);
  const Shape& shape = scores.shape();
  need(targets.shape()[0] == shape[0] && targets.shape()[1] >= 2, name,
       "targets must be of shape [" + std::to_string(shape[0]) + ", 2 + labels], not " + targets.shape().text());
  need(targets.dtype() == DType::i32, name, "targets must be i32");
  const Shape states{shape[0], shape[1], 2 * (targets.shape()[1] - 2) + 1};
  need(alpha.shape() == states, name, "alpha must be of shape " + states.text() + ", not " + alpha.shape().text());
  need(blank >= 0 && blank < shape[2], name, "the blank must be one of the classes");
  need(shape.elements() > 0, name, "the loss of an empty batch is undefined");
}

}  // namespace

void CrossEntropy::check() const {
  check_labelled(name, logits, labels, weights, smoothing);
  check_same_shape(name, logits, log_probabilities);
  vector_of(name, "loss", loss, 1), vector_of(name, "total_weight", total_weight, 1);
}

void CrossEntropyBackward::check() const {
  check_labelled(name, log_probabilities, labels, weights, smoothing);
  check_same_shape(name, log_probabilities, dlogits);
  vector_of(name, "total_weight", total_weight, 1);
}

void check_element_loss(std::string_view name, const Tensor& output, const Tensor& target, const Tensor* weights,
                        const Tensor* loss) {
  if (weights) check_same_shape(name, output, *weights);
  check_same_shape(name, output, target);
  need(output.elements() > 0, name, "the loss of an empty batch is undefined");
  if (loss) vector_of(name, "loss", *loss, 1);
}

void CtcLoss::check() const {
  check_sequences(name, logits, targets, alpha, blank);
  check_same_shape(name, logits, log_probabilities), vector_of(name, "loss", loss, 1);
}

void CtcLossBackward::check() const {
  check_sequences(name, log_probabilities, targets, alpha, blank), check_same_shape(name, log_probabilities, dlogits);
}

}  // namespace halfmark::kernels
