#include "models/layers/loss.h"

#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/layers/detection_loss.h"

namespace halfmark::models {
namespace {

constexpr LossRow kLosses[] = {
    {LossKind::cross_entropy, "cross_entropy", "softmax and cross-entropy of labels", "smoothing ignored class_weights",
     TargetKind::labels},
    {LossKind::binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits",
     losses::BinaryCrossEntropyWithLogits::about, "pos_weight", TargetKind::values},
    {LossKind::binary_cross_entropy, "binary_cross_entropy", losses::BinaryCrossEntropy::about, "", TargetKind::values},
    {LossKind::mse, "mse", losses::Mse::about, "", TargetKind::values},
    {LossKind::smooth_l1, "smooth_l1", losses::SmoothL1::about, "beta", TargetKind::values},
    {LossKind::focal, "focal", losses::Focal::about, "alpha gamma", TargetKind::values},
    {LossKind::ctc, "ctc", "connectionist temporal classification of label sequences", "blank zero_infinity",
     TargetKind::sequences},
    {LossKind::detection, "detection", "focal loss of the classes and smooth L1 loss of the boxes of anchors",
     "beta alpha gamma", TargetKind::boxes},
};

void keep_for_backward(Tensor& tensor) {
  if (tensor.purpose() == Purpose::temporary) tensor.set_purpose(Purpose::saved);
}

// Decomposes like cross_entropy_loss of the frameworks: if the cast rules do not list it, log_softmax sets the dtype.
// Under torch-cuda, half logits give an f32 loss, and dlogits are rounded to half once. Keeps log softmax(logits) for
// backward, as PyTorch does: a probability close to 1 is 1 when rounded to fp16, and the gradient at its label would be 0.
class CrossEntropyLoss : public Loss {
 public:
  explicit CrossEntropyLoss(LossSpec spec) : spec_(std::move(spec)) {
    HM_CHECK(spec_.smoothing >= 0 && spec_.smoothing <= 1,
             "cross_entropy: the smoothing is " + std::to_string(spec_.smoothing) + ", not 0 to 1");
  }

  Tensor forward(Pass& pass, const Tensor& logits, const Tensor& labels) override {
    Tensor x = pass.operand(pass.input("cross_entropy_loss", logits));
    given_ = logits.dtype(), computed_ = x.dtype(), labels_ = labels, shape_ = logits.shape();
    if (x.shape().rank() == 3) {  // [n, t, classes] with labels [n, t]: classes are the last axis
      const int64_t positions = shape_[0] * shape_[1];
      x = x.reshaped({positions, shape_[2]}), labels_ = labels.reshaped({positions});
    }
    loss_ = pass.output_dtype("log_softmax", computed_);
    log_probabilities_ = Tensor(pass.device, x.shape(), loss_);
    Tensor loss(pass.device, Shape{1}, loss_);
    if (is_plain(x)) {
      run(SoftmaxCrossEntropy{.logits = x, .labels = labels_, .loss = loss, .log_probabilities = log_probabilities_});
    } else {
      if (!spec_.class_weights.empty())
        weights_ = Tensor::from(pass.device, Shape{static_cast<int64_t>(spec_.class_weights.size())}, loss_,
                                spec_.class_weights);
      total_weight_ = Tensor(pass.device, Shape{1}, loss_ == DType::f64 ? DType::f64 : DType::f32);
      run(CrossEntropy{.logits = x,
                       .labels = labels_,
                       .weights = weights_,
                       .loss = loss,
                       .log_probabilities = log_probabilities_,
                       .total_weight = total_weight_,
                       .smoothing = spec_.smoothing,
                       .ignored = spec_.ignored.value_or(kNone)});
    }
    log_probabilities_.set_purpose(Purpose::saved);
    pass.look("activation/log_probabilities", log_probabilities_);
    pass.look("activation/loss", loss);
    return loss;
  }

  Tensor backward(Pass& pass, double dloss) override {
    HM_CHECK(!log_probabilities_.empty(), "cross-entropy: backward without forward");
    const Tensor log_probabilities = std::exchange(log_probabilities_, {}), labels = std::exchange(labels_, {}),
                 weights = std::exchange(weights_, {}), total_weight = std::exchange(total_weight_, {});
    Tensor dlogits(pass.device, log_probabilities.shape(), computed_);
    const double rounded = round_to(format_of(loss_), dloss);
    if (is_plain(log_probabilities))
      run(SoftmaxCrossEntropyBackward{
          .log_probabilities = log_probabilities, .labels = labels, .dlogits = dlogits, .dloss = rounded});
    else
      run(CrossEntropyBackward{.log_probabilities = log_probabilities,
                               .labels = labels,
                               .weights = weights,
                               .total_weight = total_weight,
                               .dlogits = dlogits,
                               .smoothing = spec_.smoothing,
                               .ignored = spec_.ignored.value_or(kNone),
                               .dloss = rounded});
    return pass.cast(dlogits.reshaped(shape_), given_);
  }

 private:
  static constexpr int64_t kNone = -1;  // no class has this label

  bool is_plain(const Tensor& x) const {
    return x.shape().rank() == 2 && spec_.smoothing == 0 && !spec_.ignored && spec_.class_weights.empty();
  }

  LossSpec spec_;
  Tensor log_probabilities_, labels_, weights_, total_weight_;
  Shape shape_;  // of the logits
  DType given_ = DType::f32, computed_ = DType::f32, loss_ = DType::f32;
};

// A row of kernels/ops/losses.h. `operation`: PyTorch's name in the cast rules.
template <class Row>
class ElementwiseLoss : public Loss {
 public:
  ElementwiseLoss(std::string_view operation, double a, double b) : operation_(operation), a_(a), b_(b) {}

  Tensor forward(Pass& pass, const Tensor& output, const Tensor& targets) override {
    output_ = pass.plain(pass.input(operation_, output)), targets_ = pass.plain(pass.input(operation_, targets));
    given_ = output.dtype(), loss_ = pass.output_dtype(operation_, output_.dtype());
    Tensor loss(pass.device, Shape{1}, loss_);
    run(ElementLoss<Row>{.output = output_, .target = targets_, .loss = loss, .a = a_, .b = b_});
    keep_for_backward(output_), keep_for_backward(targets_);
    pass.look("activation/loss", loss);
    return loss;
  }

  Tensor backward(Pass& pass, double dloss) override {
    HM_CHECK(!output_.empty(), std::string(operation_) + ": backward without forward");
    const Tensor output = std::exchange(output_, {}), targets = std::exchange(targets_, {});
    Tensor gradient(pass.device, output.shape(), output.dtype());
    run(ElementLossBackward<Row>{.output = output,
                                 .target = targets,
                                 .doutput = gradient,
                                 .a = a_,
                                 .b = b_,
                                 .dloss = round_to(format_of(loss_), dloss)});
    return pass.cast(gradient, given_);
  }

 private:
  std::string_view operation_;
  double a_, b_;
  Tensor output_, targets_;
  DType given_ = DType::f32, loss_ = DType::f32;
};

// PyTorch has no half kernel of ctc_loss: the logarithms of the probabilities are at least f32 here.
class Ctc : public Loss {
 public:
  Ctc(int blank, bool zero_infinity) : blank_(blank), zero_infinity_(zero_infinity) {}

  Tensor forward(Pass& pass, const Tensor& output, const Tensor& targets) override {
    const Tensor x = pass.operand(pass.input("log_softmax", output));
    HM_CHECK(x.shape().rank() == 3 && targets.shape().rank() == 2,
             "ctc_loss: the output must be [n, t, classes] and the targets [n, 2 + s], not " + x.shape().text() +
                 " and " + targets.shape().text());
    given_ = output.dtype(), computed_ = x.dtype(), targets_ = targets;
    loss_ = wider(pass.output_dtype("log_softmax", computed_), DType::f32);
    log_probabilities_ = Tensor(pass.device, x.shape(), loss_);
    alpha_ = Tensor(pass.device, Shape{x.shape()[0], x.shape()[1], 2 * (targets.shape()[1] - 2) + 1}, loss_);
    Tensor loss(pass.device, Shape{1}, loss_);
    run(CtcLoss{.logits = x,
                .targets = targets,
                .loss = loss,
                .log_probabilities = log_probabilities_,
                .alpha = alpha_,
                .blank = blank_,
                .zero_infinity = zero_infinity_});
    log_probabilities_.set_purpose(Purpose::saved), alpha_.set_purpose(Purpose::saved);
    pass.look("activation/log_probabilities", log_probabilities_);
    pass.look("activation/loss", loss);
    return loss;
  }

  Tensor backward(Pass& pass, double dloss) override {
    HM_CHECK(!log_probabilities_.empty(), "ctc_loss: backward without forward");
    const Tensor log_probabilities = std::exchange(log_probabilities_, {}), targets = std::exchange(targets_, {}),
                 alpha = std::exchange(alpha_, {});
    Tensor dlogits(pass.device, log_probabilities.shape(), computed_);
    run(CtcLossBackward{.log_probabilities = log_probabilities,
                        .targets = targets,
                        .alpha = alpha,
                        .dlogits = dlogits,
                        .blank = blank_,
                        .zero_infinity = zero_infinity_,
                        .dloss = round_to(format_of(loss_), dloss)});
    return pass.cast(dlogits, given_);
  }

 private:
  int blank_;
  bool zero_infinity_;
  Tensor log_probabilities_, targets_, alpha_;
  DType given_ = DType::f32, computed_ = DType::f32, loss_ = DType::f32;
};

}  // namespace

std::span<const LossRow> loss_rows() { return kLosses; }

const LossRow& loss_named(std::string_view name) { return named("loss", kLosses, name); }

const LossRow& row_of(LossKind kind) { return kLosses[static_cast<size_t>(kind)]; }

std::unique_ptr<Loss> make_loss(const LossSpec& spec) {
  switch (spec.kind) {
    case LossKind::cross_entropy:
      return std::make_unique<CrossEntropyLoss>(spec);
    case LossKind::binary_cross_entropy_with_logits:
      return std::make_unique<ElementwiseLoss<losses::BinaryCrossEntropyWithLogits>>("binary_cross_entropy_with_logits",
                                                                                     spec.pos_weight, 0);
    case LossKind::binary_cross_entropy:
      return std::make_unique<ElementwiseLoss<losses::BinaryCrossEntropy>>("binary_cross_entropy", 0, 0);
    case LossKind::mse:
      return std::make_unique<ElementwiseLoss<losses::Mse>>("mse_loss", 0, 0);
    case LossKind::smooth_l1:
      HM_CHECK(spec.beta >= 0, "smooth_l1: beta is negative");
      return std::make_unique<ElementwiseLoss<losses::SmoothL1>>("smooth_l1_loss", spec.beta, 0);
    case LossKind::focal:
      // torchvision composes it; its cross-entropy decides the dtype.
      return std::make_unique<ElementwiseLoss<losses::Focal>>("binary_cross_entropy_with_logits", spec.alpha,
                                                              spec.gamma);
    case LossKind::ctc:
      return std::make_unique<Ctc>(spec.blank, spec.zero_infinity);
    case LossKind::detection:
      return make_detection_loss(spec.beta, spec.alpha, spec.gamma);
  }
  throw Error("a loss of no known kind");
}

}  // namespace halfmark::models
