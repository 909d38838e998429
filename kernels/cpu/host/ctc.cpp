// CTC as host loops, one thread per sequence at a time. The sum over sequences is in fp64 and in their order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/ctc.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_ctc_layout(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands)
    if (operand->layout() != Layout::plain && operand->layout() != Layout::any) return "its steps are not contiguous";
  return {};
}

std::vector<ctc::Sequence> sequences_in(const Tensor& targets, const Shape& scores, int blank) {
  std::vector<ctc::Sequence> all;
  const auto width = static_cast<size_t>(targets.shape()[1]);
  for (int64_t row = 0; row < targets.shape()[0]; ++row)
    all.push_back(ctc::sequence_of(std::span(targets.as<int32_t>() + row * static_cast<int64_t>(width), width),
                                   scores[1], scores[2], blank));
  return all;
}

double labels_or_one(const ctc::Sequence& sequence) {
  return std::max<double>(1, static_cast<double>(sequence.labels.size()));
}

template <class T>
void ctc_forward(const CtcLoss& op) {
  const Shape& shape = op.logits.shape();
  const int64_t n = shape[0], steps = shape[1], classes = shape[2], width = op.alpha.shape()[2];
  const std::vector<ctc::Sequence> sequences = sequences_in(op.targets, shape, op.blank);
  std::vector<T> lp = widened<T>(op.logits), alpha(static_cast<size_t>(n * steps * width));
  std::vector<double> losses(static_cast<size_t>(n));
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t row = i * steps; row < (i + 1) * steps; ++row) {
        T* z = lp.data() + row * classes;
        T largest = z[0], sum = 0;
        for (int64_t c = 1; c < classes; ++c)
          if (z[c] > largest || std::isnan(z[c])) largest = z[c];
        for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
        const T log_of_sum = std::log(sum);
        for (int64_t c = 0; c < classes; ++c) z[c] = formulas::log_softmax(z[c], largest, log_of_sum);
      }
      const ctc::Sequence& sequence = sequences[static_cast<size_t>(i)];
      T* a = alpha.data() + i * steps * width;
      ctc::forward_variables(sequence, lp.data() + i * steps * classes, classes, a, width, steps);
      const double loss = ctc::loss_of(sequence, a, width);
      losses[static_cast<size_t>(i)] = op.zero_infinity && loss == HUGE_VAL ? 0 : loss / labels_or_one(sequence);
    }
  });
  double total = 0;
  for (const double loss : losses) total += loss;
  for (Tensor* out : {&op.loss, &op.log_probabilities, &op.alpha}) out->materialize(Layout::plain);
  store(op.loss.dtype(), op.loss.data(), 0, total / static_cast<double>(n));
  convert(kStored<T>, lp.data(), op.log_probabilities.dtype(), op.log_probabilities.data(), lp.size());
  convert(kStored<T>, alpha.data(), op.alpha.dtype(), op.alpha.data(), alpha.size());
}

template <class T>
void ctc_backward(const CtcLossBackward& op) {
  const Shape& shape = op.log_probabilities.shape();
  const int64_t n = shape[0], steps = shape[1], classes = shape[2], width = op.alpha.shape()[2];
  const std::vector<ctc::Sequence> sequences = sequences_in(op.targets, shape, op.blank);
  const std::vector<T> lp = widened<T>(op.log_probabilities), alpha = widened<T>(op.alpha);
  std::vector<T> gradient(lp.size());
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ctc::Sequence& sequence = sequences[static_cast<size_t>(i)];
      const T* a = alpha.data() + i * steps * width;
      if (op.zero_infinity && ctc::loss_of(sequence, a, width) == std::numeric_limits<T>::infinity()) continue;
      const auto factor = static_cast<T>(op.dloss / static_cast<double>(n) / labels_or_one(sequence));
      ctc::gradient_of(sequence, lp.data() + i * steps * classes, classes, a, width, steps, factor,
                       gradient.data() + i * steps * classes);
    }
  });
  op.dlogits.materialize(Layout::plain);
  convert(kStored<T>, gradient.data(), op.dlogits.dtype(), op.dlogits.data(), gradient.size());
}

Refusal refuses_ctc(const Device&, const CtcLoss& op) {
  if (Refusal refusal = refuses_ctc_layout({&op.logits, &op.log_probabilities, &op.alpha})) return refusal;
  return refuses_dtypes({&op.logits, &op.loss, &op.log_probabilities, &op.alpha});
}

Refusal refuses_ctc_backward(const Device&, const CtcLossBackward& op) {
  if (Refusal refusal = refuses_ctc_layout({&op.log_probabilities, &op.alpha, &op.dlogits})) return refusal;
  return refuses_dtypes({&op.log_probabilities, &op.alpha, &op.dlogits});
}

void run_ctc(Device&, const CtcLoss& op) {
  computes_in_double({&op.logits, &op.log_probabilities}) ? ctc_forward<double>(op) : ctc_forward<float>(op);
}

void run_ctc_backward(Device&, const CtcLossBackward& op) {
  computes_in_double({&op.log_probabilities, &op.dlogits}) ? ctc_backward<double>(op) : ctc_backward<float>(op);
}

}  // namespace

void add_ctc(KernelTable& table) {
  add_row<CtcLoss, refuses_ctc, run_ctc>(table);
  add_row<CtcLossBackward, refuses_ctc_backward, run_ctc_backward>(table);
}

}  // namespace halfmark::kernels::host
