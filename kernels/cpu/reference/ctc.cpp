// Reference rows of CTC: fp64 from the operands as stored, every output rounded once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/ctc.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::reference {
namespace {

std::vector<ctc::Sequence> sequences_of(const std::vector<int32_t>& targets, const Shape& targets_shape,
                                        const Shape& scores, int blank) {
  std::vector<ctc::Sequence> all;
  const auto width = static_cast<size_t>(targets_shape[1]);
  for (size_t row = 0; row < static_cast<size_t>(targets_shape[0]); ++row)
    all.push_back(ctc::sequence_of(std::span(targets).subspan(row * width, width), scores[1], scores[2], blank));
  return all;
}

std::vector<int32_t> integers(const Tensor& tensor) {
  std::vector<int32_t> result;
  for (const double value : tensor.values()) result.push_back(static_cast<int32_t>(value));
  return result;
}

void ctc_loss(Device&, const CtcLoss& op) {
  const Shape& shape = op.logits.shape();
  const int64_t n = shape[0], steps = shape[1], classes = shape[2], width = op.alpha.shape()[2];
  const std::vector<int32_t> targets = integers(op.targets);
  const std::vector<ctc::Sequence> sequences = sequences_of(targets, op.targets.shape(), shape, op.blank);
  std::vector<double> lp = read<double>(op.logits), alpha(static_cast<size_t>(n * steps * width));
  for (int64_t row = 0; row < n * steps; ++row) {
    double* z = lp.data() + row * classes;
    double largest = z[0], sum = 0;
    for (int64_t c = 1; c < classes; ++c)
      if (z[c] > largest || std::isnan(z[c])) largest = z[c];
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
    for (int64_t c = 0; c < classes; ++c) z[c] = formulas::log_softmax(z[c], largest, std::log(sum));
  }
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const ctc::Sequence& sequence = sequences[static_cast<size_t>(i)];
    double* a = alpha.data() + i * steps * width;
    ctc::forward_variables(sequence, lp.data() + i * steps * classes, classes, a, width, steps);
    const double loss = ctc::loss_of(sequence, a, width);
    if (op.zero_infinity && loss == HUGE_VAL) continue;
    total += loss / std::max<double>(1, static_cast<double>(sequence.labels.size()));
  }
  settle(op.loss, op.loss), settle(op.log_probabilities, op.logits), settle(op.alpha, op.alpha);
  write(op.loss, std::vector<double>{total / static_cast<double>(n)});
  write(op.log_probabilities, lp), write(op.alpha, alpha);
}

void ctc_loss_backward(Device&, const CtcLossBackward& op) {
  const Shape& shape = op.log_probabilities.shape();
  const int64_t n = shape[0], steps = shape[1], classes = shape[2], width = op.alpha.shape()[2];
  const std::vector<int32_t> targets = integers(op.targets);
  const std::vector<ctc::Sequence> sequences = sequences_of(targets, op.targets.shape(), shape, op.blank);
  const std::vector<double> lp = read<double>(op.log_probabilities), alpha = read<double>(op.alpha);
  std::vector<double> gradient(lp.size());
  for (int64_t i = 0; i < n; ++i) {
    const ctc::Sequence& sequence = sequences[static_cast<size_t>(i)];
    const double* a = alpha.data() + i * steps * width;
    if (op.zero_infinity && ctc::loss_of(sequence, a, width) == HUGE_VAL) continue;
    const double factor =
        op.dloss / static_cast<double>(n) / std::max<double>(1, static_cast<double>(sequence.labels.size()));
    ctc::gradient_of(sequence, lp.data() + i * steps * classes, classes, a, width, steps, factor,
                     gradient.data() + i * steps * classes);
  }
  settle(op.dlogits, op.log_probabilities);
  write(op.dlogits, gradient);
}

}  // namespace

void add_ctc_rows(KernelTable& table) {
  add_row<CtcLoss>(table, ctc_loss), add_row<CtcLossBackward>(table, ctc_loss_backward);
}

}  // namespace halfmark::kernels::reference
