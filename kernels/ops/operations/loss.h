// Losses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/ops/losses.h"
#include "kernels/ops/operations/window.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// loss = mean over rows of -log softmax(logits)[label], with the row maximum subtracted first. As in PyTorch (log_softmax
// and nll_loss), backward needs the logarithms: rounded to fp16, a probability close to 1 is 1, its logarithm is not 0.
struct SoftmaxCrossEntropy {
  static constexpr std::string_view name = "softmax_cross_entropy";
  const Tensor& logits;       // [n, classes]
  const Tensor& labels;       // [n] i32
  Tensor& loss;               // [1]
  Tensor& log_probabilities;  // [n, classes], log softmax(logits), for backward
  void check() const;
  void visit(auto&& v) const {
    v.input("logits", logits), v.input("labels", labels), v.output("loss", loss),
        v.output("log_probabilities", log_probabilities);
  }
};

struct SoftmaxCrossEntropyBackward {  // dlogits = (exp(log_probabilities) - onehot(labels)) dloss / n
  static constexpr std::string_view name = "softmax_cross_entropy_backward";
  const Tensor& log_probabilities;
  const Tensor& labels;
  Tensor& dlogits;
  double dloss = 1;  // includes the loss scale; a value, not part of the choice of row
  void check() const;
  void visit(auto&& v) const {
    v.input("log_probabilities", log_probabilities), v.input("labels", labels), v.output("dlogits", dlogits);
  }
};

// Cross-entropy with everything that torch.nn.functional.cross_entropy has for labels. With weights w (1 if absent),
// smoothing e and K classes, the sums over the positions whose label y is not `ignored`:
//   loss = sum of (1 - e) w_y (-log p_y) + e / K sum_k w_k (-log p_k), divided by total_weight = sum of w_y.
// Without any position it is NaN.
struct CrossEntropy {
  static constexpr std::string_view name = "cross_entropy";
  const Tensor& logits;       // [n, classes] or [n, classes, h, w]
  const Tensor& labels;       // [n] or [n, h, w] i32
  const Tensor& weights;      // [classes]; empty: all 1
  Tensor& loss;               // [1]
  Tensor& log_probabilities;  // of the shape of the logits, for backward
  Tensor& total_weight;       // [1], for backward
  double smoothing = 0;
  int64_t ignored = -100;  // PyTorch's default of ignore_index
  void check() const;
  void visit(auto&& v) const {
    v.input("logits", logits), v.input("labels", labels), v.input("weights", weights), v.output("loss", loss),
        v.output("log_probabilities", log_probabilities), v.output("total_weight", total_weight);
  }
};

// With q_k = (1 - e) w_y [k = y] + e / K w_k: dlogits = (p_k sum(q) - q_k) dloss / total_weight, and 0 where the label is
// ignored.
struct CrossEntropyBackward {
  static constexpr std::string_view name = "cross_entropy_backward";
  const Tensor& log_probabilities;
  const Tensor& labels;
  const Tensor& weights;
  const Tensor& total_weight;
  Tensor& dlogits;
  double smoothing = 0;
  int64_t ignored = -100;
  double dloss = 1;
  void check() const;
  void visit(auto&& v) const {
    v.input("log_probabilities", log_probabilities), v.input("labels", labels), v.input("weights", weights),
        v.input("total_weight", total_weight), v.output("dlogits", dlogits);
  }
};

void check_element_loss(std::string_view name, const Tensor& output, const Tensor& target, const Tensor* weights,
                        const Tensor* loss);

template <class Row>  // a row of losses.h
struct
    ElementLoss {  // loss = mean over all elements of f(output, target), or the sum of weight f, summed in at least fp32
  static constexpr std::string_view name = Row::name;
  const Tensor& output;
  const Tensor& target;  // of the output's shape
  Tensor& loss;          // [1]
  double a = Row::a, b = Row::b;
  const Tensor* weights = nullptr;  // of the output's shape; an element with the weight 0 counts nothing, be it NaN
  void check() const { check_element_loss(name, output, target, weights, &loss); }
  void visit(auto&& v) const {
    v.input("output", output), v.input("target", target), v.output("loss", loss);
    if (weights) v.input("weights", *weights);
  }
};

template <class Row>
struct ElementLossBackward {  // doutput = f'(output, target) dloss / elements, or weight f' dloss
  static constexpr std::string_view name = Row::backward_name;
  const Tensor& output;
  const Tensor& target;
  Tensor& doutput;
  double a = Row::a, b = Row::b;
  double dloss = 1;
  const Tensor* weights = nullptr;
  void check() const {
    check_element_loss(name, output, target, weights, nullptr), check_same_shape(name, output, doutput);
  }
  void visit(auto&& v) const {
    v.input("output", output), v.input("target", target), v.output("doutput", doutput);
    if (weights) v.input("weights", *weights);
  }
};

// Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber, ICML 2006), as
// torch.nn.functional.ctc_loss of log_softmax(logits) with reduction "mean": the mean over the sequences of
// -log p(labels) / max(1, number of labels). Too few steps for the labels and the blanks between equal ones: infinity,
// or 0 with zero_infinity.
struct CtcLoss {
  static constexpr std::string_view name = "ctc_loss";
  const Tensor& logits;   // [n, t, classes]
  const Tensor& targets;  // [n, 2 + s] i32: steps (1 .. t), number of labels (0 .. s), then the labels, none the blank
  Tensor& loss;           // [1]
  Tensor& log_probabilities;  // [n, t, classes], for backward; best not narrower than f32: sums of them are exponents
  Tensor& alpha;              // [n, t, 2 s + 1], for backward: the forward variables, as logarithms
  int blank = 0;
  bool zero_infinity = false;
  void check() const;
  void visit(auto&& v) const {
    v.input("logits", logits), v.input("targets", targets), v.output("loss", loss),
        v.output("log_probabilities", log_probabilities), v.output("alpha", alpha);
  }
};

// The gradient with respect to the logits; 0 after the last step of a sequence. For an infinite loss NaN, or 0 with
// zero_infinity.
struct CtcLossBackward {
  static constexpr std::string_view name = "ctc_loss_backward";
  const Tensor& log_probabilities;
  const Tensor& targets;
  const Tensor& alpha;
  Tensor& dlogits;
  int blank = 0;
  bool zero_infinity = false;
  double dloss = 1;
  void check() const;
  void visit(auto&& v) const {
    v.input("log_probabilities", log_probabilities), v.input("targets", targets), v.input("alpha", alpha),
        v.output("dlogits", dlogits);
  }
};

}  // namespace halfmark::kernels
