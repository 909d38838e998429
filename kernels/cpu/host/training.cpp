// Cross-entropy of plain labels as host loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_loss(const Device&, const SoftmaxCrossEntropy& op) {
  if (op.logits.layout() == Layout::opaque) return "logits have an opaque layout";
  return refuses_dtypes({&op.logits, &op.loss, &op.log_probabilities});
}

// Rows in parallel; the sum over rows is in fp64 and in row order.
template <class T>
void loss(const SoftmaxCrossEntropy& op) {
  const int64_t rows = op.logits.shape()[0], classes = op.logits.shape()[1];
  const auto* labels = op.labels.as<int32_t>();
  const std::vector<T> logits = widened<T>(op.logits);
  std::vector<T> log_probabilities(logits.size());
  std::vector<double> losses(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row)
    HM_CHECK(labels[row] >= 0 && labels[row] < classes, "softmax_cross_entropy: label " + std::to_string(labels[row]) +
                                                            " of row " + std::to_string(row) + " is not one of " +
                                                            std::to_string(classes) + " classes");
  parallel_for(rows, std::max<int64_t>(1, 4 * kBlock / classes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = logits.data() + row * classes;
      T* p = log_probabilities.data() + row * classes;
      const T largest = largest_of(x, classes);  // if x has a NaN, the sum has one too
      const T log_sum = std::log(sum_of_exponentials(x, classes, largest));
      for (int64_t c = 0; c < classes; ++c) p[c] = formulas::log_softmax(x[c], largest, log_sum);
      losses[static_cast<size_t>(row)] = -p[labels[row]];
    }
  });
  double total = 0;
  for (const double each : losses) total += each;
  op.loss.materialize(Layout::plain), op.log_probabilities.materialize(Layout::plain);
  store(op.loss.dtype(), op.loss.data(), 0, total / static_cast<double>(rows));
  convert(kStored<T>, log_probabilities.data(), op.log_probabilities.dtype(), op.log_probabilities.data(),
          log_probabilities.size());
}

void run_loss(Device&, const SoftmaxCrossEntropy& op) {
  computes_in_double({&op.logits, &op.log_probabilities}) ? loss<double>(op) : loss<float>(op);
}

Refusal refuses_loss_backward(const Device&, const SoftmaxCrossEntropyBackward& op) {
  if (op.log_probabilities.layout() == Layout::opaque || op.dlogits.layout() == Layout::opaque)
    return "an opaque layout";
  return refuses_dtypes({&op.log_probabilities, &op.dlogits});
}

template <class T>
void loss_backward(const SoftmaxCrossEntropyBackward& op) {
  const int64_t rows = op.log_probabilities.shape()[0], classes = op.log_probabilities.shape()[1];
  const auto* labels = op.labels.as<int32_t>();
  std::vector<T> gradient = widened<T>(op.log_probabilities);
  const T factor = static_cast<T>(op.dloss / static_cast<double>(rows));
  parallel_for(rows, std::max<int64_t>(1, 4 * kBlock / classes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* p = gradient.data() + row * classes;
      const T at_label = p[labels[row]];
      HM_EACH_FOR_ITSELF
      for (int64_t c = 0; c < classes; ++c) p[c] = exp_of_nonpositive(p[c]) * factor;
      p[labels[row]] = formulas::softmax_backward(at_label, true, factor);
    }
  });
  op.dlogits.materialize(Layout::plain);
  convert(kStored<T>, gradient.data(), op.dlogits.dtype(), op.dlogits.data(), gradient.size());
}

void run_loss_backward(Device&, const SoftmaxCrossEntropyBackward& op) {
  computes_in_double({&op.log_probabilities, &op.dlogits}) ? loss_backward<double>(op) : loss_backward<float>(op);
}

}  // namespace

void add_training(KernelTable& table) {
  add_row<SoftmaxCrossEntropy, refuses_loss, run_loss>(table);
  add_row<SoftmaxCrossEntropyBackward, refuses_loss_backward, run_loss_backward>(table);
}

}  // namespace halfmark::kernels::host
