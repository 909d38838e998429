// Loss, unscaling and the optimizer step as host loops.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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
      T largest = x[0];
      for (int64_t c = 1; c < classes; ++c)
        if (x[c] > largest || std::isnan(x[c])) largest = x[c];
      T sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
      const T log_sum = std::log(sum);
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
  for (int64_t row = 0; row < rows; ++row) {
    T* p = gradient.data() + row * classes;
    const T at_label = p[labels[row]];
    for (int64_t c = 0; c < classes; ++c) p[c] = formulas::softmax_backward(p[c], false, factor);
    p[labels[row]] = formulas::softmax_backward(at_label, true, factor);
  }
  op.dlogits.materialize(Layout::plain);
  convert(kStored<T>, gradient.data(), op.dlogits.dtype(), op.dlogits.data(), gradient.size());
}

void run_loss_backward(Device&, const SoftmaxCrossEntropyBackward& op) {
  computes_in_double({&op.log_probabilities, &op.dlogits}) ? loss_backward<double>(op) : loss_backward<float>(op);
}

Refusal refuses_unscale(const Device&, const Unscale& op) {
  if (op.found_inf.dtype() != DType::f32) return "found_inf must be f32";
  return refuses_dtypes({&op.gradient});
}

template <class T>
void unscale(const Unscale& op) {
  std::atomic<bool> found{false};
  const T factor = op.inverse_scale;
  parallel_for(stored_elements(op.gradient), kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], result[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      const T* g = read(op.gradient, i, count, buffer);
      T* r = writable(op.gradient, i, result);
      int bad = 0;
      for (int64_t j = 0; j < count; ++j) {
        bad |= formulas::overflowed(g[j]);
        r[j] = formulas::unscale(g[j], factor);
      }
      if (bad) found = true;
      written(op.gradient, i, count, r);
    }
  });
  if (found) *op.found_inf.as<float>() = 1;
}

void run_unscale(Device&, const Unscale& op) {
  op.gradient.dtype() == DType::f64 ? unscale<double>(op) : unscale<float>(op);
}

Refusal refuses_sgd(const Device&, const SgdStep& op) {
  for (const Tensor* operand : std::initializer_list<const Tensor*>{&op.velocity, &op.low})
    if (!operand->empty() && !same_layout(*operand, op.parameter) && operand->layout() != Layout::any)
      return "parameter, velocity and low copy have different layouts";
  if (op.parameter.layout() == Layout::opaque) return "the parameter has an opaque layout";
  return refuses_dtypes({&op.parameter, &op.gradient, &op.velocity, &op.low});
}

template <bool kMomentum, bool kDecay, class T>
void sgd_loop(const SgdStep& op, const Tensor& gradient) {
  const T rate = static_cast<T>(op.rate), momentum = static_cast<T>(op.momentum),
          decay = static_cast<T>(op.weight_decay);
  const bool has_velocity = !op.velocity.empty();
  parallel_for(op.parameter.elements(), kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T bp[kBlock], bg[kBlock], bv[kBlock] = {}, rp[kBlock], rv[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      const T *p = read(op.parameter, i, count, bp), *g = read(gradient, i, count, bg);
      const T* v = has_velocity ? read(op.velocity, i, count, bv) : bv;
      T* next = writable(op.parameter, i, rp);
      T* speed = has_velocity ? writable(op.velocity, i, rv) : rv;
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        const auto step = formulas::sgd_step(p[j], g[j], v[j], rate, momentum, decay, kMomentum, kDecay);
        speed[j] = step.velocity;
        next[j] = step.parameter;
      }
      if (has_velocity) written(op.velocity, i, count, speed);
      written(op.parameter, i, count, next);
      if (!op.low.empty())  // of the parameter as stored
        convert(op.parameter.dtype(), at(op.parameter.data(), op.parameter.dtype(), i), op.low.dtype(),
                at(op.low.data(), op.low.dtype(), i), static_cast<size_t>(count));
    }
  });
}

template <class T>
void sgd(const SgdStep& op, const Tensor& gradient) {
  const bool momentum = static_cast<T>(op.momentum) != 0, decay = static_cast<T>(op.weight_decay) != 0;
  if (momentum)
    decay ? sgd_loop<true, true, T>(op, gradient) : sgd_loop<true, false, T>(op, gradient);
  else
    decay ? sgd_loop<false, true, T>(op, gradient) : sgd_loop<false, false, T>(op, gradient);
}

void run_sgd(Device&, const SgdStep& op) {
  if (!op.low.empty()) op.low.materialize(op.parameter.layout());
  const Tensor gradient = in_layout_of(op.parameter, op.gradient);
  computes_in_double({&op.parameter, &op.gradient}) ? sgd<double>(op, gradient) : sgd<float>(op, gradient);
}

}  // namespace

void add_training(KernelTable& table) {
  add_row<SoftmaxCrossEntropy, refuses_loss, run_loss>(table);
  add_row<SoftmaxCrossEntropyBackward, refuses_loss_backward, run_loss_backward>(table);
  add_row<Unscale, refuses_unscale, run_unscale>(table);
  add_row<SgdStep, refuses_sgd, run_sgd>(table);
}

}  // namespace halfmark::kernels::host
