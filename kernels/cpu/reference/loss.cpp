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

}  // namespace

void add_loss_rows(KernelTable& table) {
  add_row<SoftmaxCrossEntropy>(table, softmax_cross_entropy);
  add_row<SoftmaxCrossEntropyBackward>(table, softmax_cross_entropy_backward);
}

}  // namespace halfmark::kernels::reference
