// Reference rows of the loss: fp64 from the logits as stored, every output rounded once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/number/error.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::reference {
namespace {

std::vector<size_t> read_labels(const Tensor& labels, int64_t classes) {
  std::vector<size_t> result;
  for (const double label : labels.values()) {
    HM_CHECK(
        label >= 0 && label < static_cast<double>(classes),
        "label " + std::to_string(static_cast<int64_t>(label)) + " is outside 0 .. " + std::to_string(classes - 1));
    result.push_back(static_cast<size_t>(label));
  }
  return result;
}

void softmax_cross_entropy(Device&, const SoftmaxCrossEntropy& op) {
  const auto n = static_cast<size_t>(op.logits.shape()[0]), classes = static_cast<size_t>(op.logits.shape()[1]);
  const std::vector<double> logits = read<double>(op.logits);
  const std::vector<size_t> labels = read_labels(op.labels, op.logits.shape()[1]);
  std::vector<double> log_probabilities(logits.size());
  double loss = 0;
  for (size_t i = 0; i < n; ++i) {
    const double* row = &logits[i * classes];
    double largest = row[0], sum = 0;
    for (size_t c = 1; c < classes; ++c)
      if (row[c] > largest || std::isnan(row[c])) largest = row[c];
    for (size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    double* result = &log_probabilities[i * classes];
    const double log_sum = std::log(sum);
    for (size_t c = 0; c < classes; ++c) result[c] = formulas::log_softmax(row[c], largest, log_sum);
    loss -= result[labels[i]];
  }
  settle(op.loss, op.loss), settle(op.log_probabilities, op.logits);
  write(op.loss, std::vector<double>{loss / static_cast<double>(n)});
  write(op.log_probabilities, log_probabilities);
}

void softmax_cross_entropy_backward(Device&, const SoftmaxCrossEntropyBackward& op) {
  const auto n = static_cast<size_t>(op.log_probabilities.shape()[0]),
             classes = static_cast<size_t>(op.log_probabilities.shape()[1]);
  std::vector<double> gradient = read<double>(op.log_probabilities);
  const std::vector<size_t> labels = read_labels(op.labels, op.log_probabilities.shape()[1]);
  for (size_t i = 0; i < n; ++i)
    for (size_t c = 0; c < classes; ++c) {
      double& g = gradient[i * classes + c];
      g = formulas::softmax_backward(g, c == labels[i], 1.0) * op.dloss / static_cast<double>(n);
    }
  settle(op.dlogits, op.log_probabilities);
  write(op.dlogits, gradient);
}

// The labels, and the number of scores between two classes of one position.
struct Labelled {
  std::vector<double> labels, weights;
  size_t classes, pixels;
  Labelled(const Shape& shape, const Tensor& label_tensor, const Tensor& weight_tensor, int64_t ignored)
      : labels(label_tensor.values()),
        weights(weight_tensor.empty() ? std::vector<double>(static_cast<size_t>(shape[1]), 1.0)
                                      : read<double>(weight_tensor)),
        classes(static_cast<size_t>(shape[1])),
        pixels(shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1) {
    for (const double label : labels)
      HM_CHECK(
          label == static_cast<double>(ignored) || (label >= 0 && label < static_cast<double>(classes)),
          "label " + std::to_string(static_cast<int64_t>(label)) + " is outside 0 .. " + std::to_string(classes - 1));
  }
  // The place of the score of class c at a position.
  size_t place(size_t position, size_t c) const {
    return (position / pixels * classes + c) * pixels + position % pixels;
  }
};

void labelled_cross_entropy(Device&, const CrossEntropy& op) {
  const Labelled given(op.logits.shape(), op.labels, op.weights, op.ignored);
  const std::vector<double> logits = read<double>(op.logits);
  std::vector<double> logs(logits.size());
  double loss = 0, total = 0;
  for (size_t position = 0; position < given.labels.size(); ++position) {
    double largest = logits[given.place(position, 0)], sum = 0;
    for (size_t c = 1; c < given.classes; ++c) {
      const double logit = logits[given.place(position, c)];
      if (logit > largest || std::isnan(logit)) largest = logit;
    }
    for (size_t c = 0; c < given.classes; ++c) sum += std::exp(logits[given.place(position, c)] - largest);
    const double log_sum = std::log(sum);
    double smooth = 0;
    for (size_t c = 0; c < given.classes; ++c) {
      const size_t i = given.place(position, c);
      logs[i] = formulas::log_softmax(logits[i], largest, log_sum);
      smooth -= given.weights[c] * logs[i];
    }
    if (given.labels[position] == static_cast<double>(op.ignored)) continue;
    const auto label = static_cast<size_t>(given.labels[position]);
    total += given.weights[label];
    if (op.smoothing != 1) loss -= (1 - op.smoothing) * given.weights[label] * logs[given.place(position, label)];
    if (op.smoothing != 0) loss += op.smoothing / static_cast<double>(given.classes) * smooth;
  }
  settle(op.loss, op.loss), settle(op.total_weight, op.total_weight), settle(op.log_probabilities, op.logits);
  write(op.loss, std::vector<double>{loss / total}), write(op.total_weight, std::vector<double>{total});
  write(op.log_probabilities, logs);
}

void labelled_cross_entropy_backward(Device&, const CrossEntropyBackward& op) {
  const Labelled given(op.log_probabilities.shape(), op.labels, op.weights, op.ignored);
  const std::vector<double> logs = read<double>(op.log_probabilities);
  const double factor = op.dloss / read<double>(op.total_weight)[0],
               soft = op.smoothing / static_cast<double>(given.classes);
  // Without smoothing there are no shares of it: 0 times an infinite weight would be NaN.
  std::vector<double> shares(given.classes, 0);
  double all = 0;
  for (size_t c = 0; c < given.classes && soft != 0; ++c) shares[c] = soft * given.weights[c], all += shares[c];
  std::vector<double> gradient(logs.size());
  for (size_t position = 0; position < given.labels.size(); ++position) {
    if (given.labels[position] == static_cast<double>(op.ignored)) continue;
    const auto label = static_cast<size_t>(given.labels[position]);
    const double hard = (1 - op.smoothing) * given.weights[label];
    for (size_t c = 0; c < given.classes; ++c) {
      const size_t i = given.place(position, c);
      const double q = (c == label ? hard : 0) + shares[c];
      gradient[i] = (std::exp(logs[i]) * (hard + all) - q) * factor;
    }
  }
  settle(op.dlogits, op.log_probabilities);
  write(op.dlogits, gradient);
}

}  // namespace

void add_loss_rows(KernelTable& table) {
  add_row<SoftmaxCrossEntropy>(table, softmax_cross_entropy);
  add_row<SoftmaxCrossEntropyBackward>(table, softmax_cross_entropy_backward);
  add_row<CrossEntropy>(table, labelled_cross_entropy);
  add_row<CrossEntropyBackward>(table, labelled_cross_entropy_backward);
}

}  // namespace halfmark::kernels::reference
