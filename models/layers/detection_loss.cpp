#include "models/layers/detection_loss.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "models/anchors.h"
#include "models/data.h"

namespace halfmark::models {
namespace {

// Columns of [rows, width] as a matrix of its own.
Tensor columns(Pass& pass, const Tensor& all, int64_t from, int64_t count) {
  Tensor part(pass.device, {all.shape()[0], count}, all.dtype());
  run(CopyChannels{.x = all, .out = part, .from = from, .to = 0, .count = count});
  return part;
}

// The weighted sum of an element-wise loss over some columns of the output.
template <class Row>
struct Part {
  std::string_view operation;  // PyTorch's name in the cast rules
  int64_t from, count;         // columns
  double a, b;
  Tensor output{}, target{}, weights{};
  DType loss = DType::f32;

  // `values`, `wanted`: [rows, width] and [rows, 2 width].
  Tensor forward(Pass& pass, const Tensor& values, const Tensor& wanted) {
    const int64_t width = values.shape()[1];
    output = pass.input(operation, columns(pass, values, from, count));
    target = pass.input(operation, columns(pass, wanted, from, count));
    weights = pass.input(operation, columns(pass, wanted, width + from, count));
    loss = pass.output_dtype(operation, output.dtype());
    Tensor sum(pass.device, Shape{1}, loss);
    run(ElementLoss<Row>{.output = output, .target = target, .loss = sum, .a = a, .b = b, .weights = &weights});
    for (Tensor* kept : {&output, &target, &weights})
      if (kept->purpose() == Purpose::temporary) kept->set_purpose(Purpose::saved);
    return sum;
  }
  // Into its columns of `all`.
  void backward(Pass& pass, double dloss, Tensor& all) {
    const Tensor x = std::exchange(output, {}), y = std::exchange(target, {}), w = std::exchange(weights, {});
    Tensor gradient(pass.device, x.shape(), x.dtype());
    run(ElementLossBackward<Row>{.output = x,
                                 .target = y,
                                 .doutput = gradient,
                                 .a = a,
                                 .b = b,
                                 .dloss = round_to(format_of(loss), dloss),
                                 .weights = &w});
    run(CopyChannels{.x = pass.cast(gradient, all.dtype()), .out = all, .from = 0, .to = from, .count = count});
  }
};

class DetectionLoss : public Loss {
 public:
  DetectionLoss(double beta, double alpha, double gamma) : beta_(beta), alpha_(alpha), gamma_(gamma) {}

  Tensor forward(Pass& pass, const Tensor& output, const Tensor& targets) override {
    shape_ = output.shape(), given_ = output.dtype();
    HM_CHECK(shape_.rank() == 3 && shape_[2] > 4 && targets.shape() == Shape({shape_[0], shape_[1], 2 * shape_[2]}),
             "detection: the output must be [n, anchors, classes + 4] with targets of twice the width, not " +
                 shape_.text() + " and " + targets.shape().text());
    const int64_t rows = shape_[0] * shape_[1], width = shape_[2], classes = width - 4;
    const Tensor values = pass.operand(output).reshaped({rows, width}),
                 wanted = pass.operand(targets).reshaped({rows, 2 * width});
    // torchvision composes the focal loss; its cross-entropy decides the dtype.
    scores_ = {"binary_cross_entropy_with_logits", 0, classes, alpha_, gamma_};
    boxes_ = {"smooth_l1_loss", classes, 4, beta_, 0};
    Tensor loss = pass.sum(scores_.forward(pass, values, wanted), boxes_.forward(pass, values, wanted));
    pass.look("activation/loss", loss);
    return loss;
  }

  Tensor backward(Pass& pass, double dloss) override {
    HM_CHECK(!scores_.output.empty(), "detection: backward without forward");
    Tensor gradient(pass.device, {shape_[0] * shape_[1], shape_[2]}, given_);
    scores_.backward(pass, dloss, gradient), boxes_.backward(pass, dloss, gradient);
    return gradient.reshaped(shape_);
  }

 private:
  double beta_, alpha_, gamma_;
  Shape shape_;  // of the output
  DType given_ = DType::f32;
  Part<losses::Focal> scores_{};
  Part<losses::SmoothL1> boxes_{};
};

}  // namespace

std::unique_ptr<Loss> make_detection_loss(double beta, double alpha, double gamma) {
  HM_CHECK(beta >= 0, "detection: beta is negative");
  return std::make_unique<DetectionLoss>(beta, alpha, gamma);
}

std::vector<double> detection_targets(const std::vector<double>& labels, int64_t samples, int64_t classes, int64_t rows,
                                      int64_t columns) {
  const std::vector<Box> anchors = anchors_of(rows, columns);
  const size_t width = static_cast<size_t>(classes) + 4;
  std::vector<double> all(static_cast<size_t>(samples) * anchors.size() * 2 * width, 0.0);
  for (int64_t n = 0; n < samples; ++n) {
    const LabelledBoxes objects = boxes_of(labels, n);
    const std::vector<int64_t> match = matched(anchors, objects.boxes);
    const auto positives = std::count_if(match.begin(), match.end(), [](int64_t one) { return one >= 0; });
    const double weight = 1 / (static_cast<double>(samples) * static_cast<double>(std::max<int64_t>(1, positives)));
    for (size_t a = 0; a < anchors.size(); ++a) {
      if (match[a] == kBetween) continue;
      double* values = all.data() + (static_cast<size_t>(n) * anchors.size() + a) * 2 * width;
      std::fill_n(values + width, classes, weight);
      if (match[a] == kBackground) continue;
      const auto object = static_cast<size_t>(match[a]);
      values[objects.classes[object]] = 1;
      const std::array<double, 4> box = encoded(anchors[a], objects.boxes[object]);
      std::copy(box.begin(), box.end(), values + classes);
      std::fill_n(values + width + classes, 4, weight);
    }
  }
  return all;
}

}  // namespace halfmark::models
