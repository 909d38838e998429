// The element-wise losses, and cross-entropy with weights, smoothing and ignored labels, as host loops. Sums over
// elements are in fp64, in pieces that depend on the sizes only.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"
#include "kernels/ops/losses.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_element_operands(const Tensor& output, const Tensor& target) {
  if (output.layout() == Layout::opaque || target.layout() == Layout::opaque) return "an operand has an opaque layout";
  return {};
}

template <class Row, class T>
void element_loss(const ElementLoss<Row>& op) {
  const Tensor target = in_layout_of(op.output, op.target),
               weights = op.weights ? in_layout_of(op.output, *op.weights) : Tensor();
  const int64_t count = op.output.elements();
  const T a = static_cast<T>(op.a), b = static_cast<T>(op.b);
  std::vector<double> sums(static_cast<size_t>((count + kGrain - 1) / kGrain));
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T bx[kBlock], by[kBlock], bw[kBlock], values[kBlock];
    double sum = 0;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t block = std::min(kBlock, end - i);
      const T *x = read(op.output, i, block, bx), *y = read(target, i, block, by);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < block; ++j) values[j] = Row::value(x[j], y[j], a, b);
      if (op.weights) {
        const T* w = read(weights, i, block, bw);
        for (int64_t j = 0; j < block; ++j) values[j] = w[j] == 0 ? 0 : values[j] * w[j];
      }
      for (int64_t j = 0; j < block; ++j) sum += static_cast<double>(values[j]);
    }
    sums[static_cast<size_t>(begin / kGrain)] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  op.loss.materialize(Layout::plain);
  store(op.loss.dtype(), op.loss.data(), 0, op.weights ? total : total / static_cast<double>(count));
}

template <class Row, class T>
void element_loss_backward(const ElementLossBackward<Row>& op) {
  const T a = static_cast<T>(op.a), b = static_cast<T>(op.b),
          factor = static_cast<T>(op.weights ? op.dloss : op.dloss / static_cast<double>(op.output.elements()));
  const Tensor target = in_layout_of(op.output, op.target);
  Result gradient(op.doutput, op.output);
  if (op.weights) {
    const Tensor weights = in_layout_of(op.output, *op.weights);
    map<T, 3>(gradient.tensor(), {&op.output, &target, &weights},
              [=](T x, T y, T w) { return w == 0 ? 0 : Row::slope(x, y, a, b) * w * factor; });
    return gradient.finish();
  }
  map<T, 2>(gradient.tensor(), {&op.output, &target}, [=](T x, T y) { return Row::slope(x, y, a, b) * factor; });
  gradient.finish();
}

template <class Row>
Refusal refuses_element_loss(const Device&, const ElementLoss<Row>& op) {
  if (Refusal refusal = refuses_element_operands(op.output, op.target)) return refusal;
  if (op.weights)
    if (Refusal refusal = refuses_dtypes({op.weights})) return refusal;
  return refuses_dtypes({&op.output, &op.target, &op.loss});
}

template <class Row>
Refusal refuses_element_loss_backward(const Device&, const ElementLossBackward<Row>& op) {
  if (Refusal refusal = refuses_element_operands(op.output, op.target)) return refusal;
  if (op.weights)
    if (Refusal refusal = refuses_dtypes({op.weights})) return refusal;
  return refuses_dtypes({&op.output, &op.target, &op.doutput});
}

template <class Row>
void run_element_loss(Device&, const ElementLoss<Row>& op) {
  computes_in_double({&op.output, &op.target}) ? element_loss<Row, double>(op) : element_loss<Row, float>(op);
}

template <class Row>
void run_element_loss_backward(Device&, const ElementLossBackward<Row>& op) {
  computes_in_double({&op.output, &op.target}) ? element_loss_backward<Row, double>(op)
                                               : element_loss_backward<Row, float>(op);
}

// Positions of [n, classes] or [n, classes, h, w] in plain layout. The loops over a block of neighbouring positions are
// inside those over the classes, so that they read memory in order.
struct Positions {
  int64_t samples, classes, pixels, block, blocks;  // blocks in a sample
  explicit Positions(const Shape& shape)
      : samples(shape[0]),
        classes(shape[1]),
        pixels(shape.rank() == 4 ? shape[2] * shape[3] : 1),
        block(std::min<int64_t>(pixels, 256)),
        blocks((pixels + block - 1) / block) {}
  int64_t grain() const { return std::max<int64_t>(1, 4 * kBlock / (classes * block)); }
  // f(number of the block, index of its first label, index of the score of its first position in class 0, positions)
  void each_block(auto f) const {
    if (samples * pixels == 0) return;
    parallel_for(samples * blocks, grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t sample = i / blocks, pixel = i % blocks * block;
        f(i, sample * pixels + pixel, sample * classes * pixels + pixel, std::min(block, pixels - pixel));
      }
    });
  }
};

void check_labels(const Tensor& labels, int64_t classes, int64_t ignored) {
  const auto* values = labels.as<int32_t>();
  for (int64_t i = 0; i < labels.elements(); ++i)
    HM_CHECK(values[i] == ignored || (values[i] >= 0 && values[i] < classes),
             "cross_entropy: label " + std::to_string(values[i]) + " at " + std::to_string(i) + " is not one of " +
                 std::to_string(classes) + " classes");
}

template <class T>
std::vector<T> class_weights(const Tensor& weights, int64_t classes) {
  return weights.empty() ? std::vector<T>(static_cast<size_t>(classes), T(1)) : widened<T>(weights);
}

template <class T>
void labelled_loss(const CrossEntropy& op) {
  const Positions at(op.logits.shape());
  const auto* labels = op.labels.template as<int32_t>();
  check_labels(op.labels, at.classes, op.ignored);
  const std::vector<T> logits = widened<T>(op.logits);
  const std::vector<double> weights = class_weights<double>(op.weights, at.classes);
  std::vector<T> logs(logits.size());
  std::vector<double> losses(static_cast<size_t>(at.samples * at.blocks)), totals(losses.size());
  const double hard = 1 - op.smoothing, soft = op.smoothing / static_cast<double>(at.classes);
  at.each_block([&](int64_t number, int64_t first_label, int64_t first, int64_t count) {
    alignas(64) T largest[256] = {}, sum[256] = {};
    if (at.pixels == 1) {  // the classes of one position are neighbours
      const T* z = logits.data() + first;
      largest[0] = largest_of(z, at.classes);  // if z has a NaN, the sum has one too
      sum[0] = sum_of_exponentials(z, at.classes, largest[0]);
    } else {
      std::copy_n(logits.data() + first, count, largest);
      for (int64_t c = 1; c < at.classes; ++c) {
        const T* z = logits.data() + first + c * at.pixels;
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < count; ++j) largest[j] = z[j] > largest[j] || std::isnan(z[j]) ? z[j] : largest[j];
      }
      for (int64_t c = 0; c < at.classes; ++c) {
        const T* z = logits.data() + first + c * at.pixels;
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < count; ++j) sum[j] += exp_of_nonpositive(z[j] - largest[j]);
      }
    }
    for (int64_t j = 0; j < count; ++j) sum[j] = std::log(sum[j]);
    double loss = 0, total = 0;
    for (int64_t c = 0; c < at.classes; ++c) {
      const T* z = logits.data() + first + c * at.pixels;
      T* p = logs.data() + first + c * at.pixels;
      for (int64_t j = 0; j < count; ++j) p[j] = formulas::log_softmax(z[j], largest[j], sum[j]);
      if (soft == 0) continue;
      for (int64_t j = 0; j < count; ++j)
        if (labels[first_label + j] != op.ignored) loss -= soft * weights[static_cast<size_t>(c)] * p[j];
    }
    for (int64_t j = 0; j < count; ++j) {
      const int32_t label = labels[first_label + j];
      if (label == op.ignored) continue;
      const double weight = weights[static_cast<size_t>(label)];
      total += weight;
      if (hard != 0) loss -= hard * weight * logs[static_cast<size_t>(first + j + label * at.pixels)];
    }
    losses[static_cast<size_t>(number)] = loss, totals[static_cast<size_t>(number)] = total;
  });
  double loss = 0, total = 0;
  for (size_t i = 0; i < losses.size(); ++i) loss += losses[i], total += totals[i];
  for (Tensor* out : {&op.loss, &op.total_weight, &op.log_probabilities}) out->materialize(Layout::plain);
  store(op.loss.dtype(), op.loss.data(), 0, loss / total);
  store(op.total_weight.dtype(), op.total_weight.data(), 0, total);
  convert(kStored<T>, logs.data(), op.log_probabilities.dtype(), op.log_probabilities.data(), logs.size());
}

template <class T>
void labelled_loss_backward(const CrossEntropyBackward& op) {
  const Positions at(op.log_probabilities.shape());
  const auto* labels = op.labels.template as<int32_t>();
  check_labels(op.labels, at.classes, op.ignored);
  std::vector<T> gradient = widened<T>(op.log_probabilities);
  const std::vector<T> weights = class_weights<T>(op.weights, at.classes);
  const std::vector<double> exact_weights = class_weights<double>(op.weights, at.classes);
  const double soft = op.smoothing / static_cast<double>(at.classes);
  // Without smoothing there are no shares of it: 0 times an infinite weight would be NaN.
  double all = 0;
  std::vector<T> shares(weights.size(), T(0));
  for (size_t c = 0; c < weights.size() && soft != 0; ++c)
    all += exact_weights[c], shares[c] = static_cast<T>(soft) * weights[c];
  const T factor = static_cast<T>(op.dloss / load(op.total_weight.dtype(), op.total_weight.data(), 0)),
          hard = static_cast<T>(1 - op.smoothing), soft_sum = static_cast<T>(soft * all);
  const T* share = shares.data();
  at.each_block([&](int64_t, int64_t first_label, int64_t first, int64_t count) {
    alignas(64) T at_label[256] = {},
                  kept[256] = {};  // of each position: the weight of its label, and 0 if it is ignored
    for (int64_t j = 0; j < count; ++j) {
      const int32_t label = labels[first_label + j];
      at_label[j] = label == op.ignored ? T(0) : hard * weights[static_cast<size_t>(label)];
      kept[j] = label == op.ignored ? T(0) : T(1);
    }
    if (at.pixels == 1) {  // the classes of one position are neighbours
      T* p = gradient.data() + first;
      if (kept[0] == 0) {
        std::fill_n(p, at.classes, T(0));
        return;
      }
      const T sum = at_label[0] + soft_sum, label_score = p[labels[first_label]];
      HM_EACH_FOR_ITSELF
      for (int64_t c = 0; c < at.classes; ++c) p[c] = (exp_of_nonpositive(p[c]) * sum - share[c]) * factor;
      const T q = at_label[0] + share[labels[first_label]];
      p[labels[first_label]] = (exp_of_nonpositive(label_score) * sum - q) * factor;
      return;
    }
    for (int64_t c = 0; c < at.classes; ++c) {
      T* p = gradient.data() + first + c * at.pixels;
      const int32_t* label = labels + first_label;
      const auto own = static_cast<int32_t>(c);
      const T shared = share[c];
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        const T q = (label[j] == own ? at_label[j] : T(0)) + shared;
        const T slope = (exp_of_nonpositive(p[j]) * (at_label[j] + soft_sum) - q) * factor;
        p[j] = kept[j] == 0 ? T(0) : slope;
      }
    }
  });
  op.dlogits.materialize(Layout::plain);
  convert(kStored<T>, gradient.data(), op.dlogits.dtype(), op.dlogits.data(), gradient.size());
}

Refusal refuses_scores(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands)
    if (operand->layout() != Layout::plain && operand->layout() != Layout::any) return "its scores are not plain";
  return {};
}

Refusal refuses_labelled(const Device&, const CrossEntropy& op) {
  if (Refusal refusal = refuses_scores({&op.logits, &op.log_probabilities, &op.labels})) return refusal;
  return refuses_dtypes({&op.logits, &op.weights, &op.loss, &op.log_probabilities, &op.total_weight});
}

Refusal refuses_labelled_backward(const Device&, const CrossEntropyBackward& op) {
  if (Refusal refusal = refuses_scores({&op.log_probabilities, &op.dlogits, &op.labels})) return refusal;
  return refuses_dtypes({&op.log_probabilities, &op.weights, &op.total_weight, &op.dlogits});
}

void run_labelled(Device&, const CrossEntropy& op) {
  computes_in_double({&op.logits, &op.log_probabilities}) ? labelled_loss<double>(op) : labelled_loss<float>(op);
}

void run_labelled_backward(Device&, const CrossEntropyBackward& op) {
  computes_in_double({&op.log_probabilities, &op.dlogits}) ? labelled_loss_backward<double>(op)
                                                           : labelled_loss_backward<float>(op);
}

}  // namespace

void add_losses(KernelTable& table) {
  add_row<CrossEntropy, refuses_labelled, run_labelled>(table);
  add_row<CrossEntropyBackward, refuses_labelled_backward, run_labelled_backward>(table);
  losses::All::each([&]<class Row>() {
    add_row<ElementLoss<Row>, refuses_element_loss<Row>, run_element_loss<Row>>(table);
    add_row<ElementLossBackward<Row>, refuses_element_loss_backward<Row>, run_element_loss_backward<Row>>(table);
  });
}

}  // namespace halfmark::kernels::host
