#include "models/score.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

// The class with the largest of `classes` numbers, `step` apart; the first of equal ones, and -1 if one is NaN.
int64_t best(const double* values, int64_t classes, int64_t step) {
  int64_t winner = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (values[c * step] != values[c * step]) return -1;
    if (values[c * step] > values[winner * step]) winner = c;
  }
  return winner;
}

bool are_all_symbols_right(const double* values, int64_t steps, int64_t classes, const double* target) {
  const auto count = static_cast<int64_t>(target[1]);
  int64_t found = 0, before = 0;
  for (int64_t t = 0; t < steps; ++t) {
    const int64_t symbol = best(values + t * classes, classes, 1);
    if (symbol < 0) return false;
    if (symbol != 0 && symbol != before) {
      if (found == count || symbol != static_cast<int64_t>(target[2 + found])) return false;
      ++found;
    }
    before = symbol;
  }
  return found == count;
}

bool is_found(const Box& object, int64_t kind, std::span<const Box> anchors, const double* values, int64_t classes) {
  double most = -std::numeric_limits<double>::infinity();
  int64_t winner = -1;
  for (size_t a = 0; a < anchors.size(); ++a, values += classes + 4) {
    if (!(overlap(decoded(anchors[a], std::span<const double, 4>(values + classes, 4)), object) >= 0.5)) continue;
    const int64_t own = best(values, classes, 1);
    if (own >= 0 && values[own] > most) most = values[own], winner = own;
  }
  return winner == kind;
}

Score score_of_boxes(const Shape& input, const Shape& output, const std::vector<double>& values,
                     const std::vector<double>& labels) {
  const std::vector<Box> anchors = anchors_of(input[2], input[3]);
  Score score;
  for (int64_t n = 0; n < output[0]; ++n) {
    const LabelledBoxes objects = boxes_of(labels, n);
    for (size_t o = 0; o < objects.boxes.size(); ++o)
      score.right += is_found(objects.boxes[o], objects.classes[o], anchors, values.data() + n * output[1] * output[2],
                              output[2] - 4);
    score.counted += static_cast<double>(objects.boxes.size());
  }
  return score;
}

Score score_of_speech(const Shape& output, const std::vector<double>& values, const std::vector<double>& labels) {
  const int64_t width = static_cast<int64_t>(labels.size()) / output[0], sequence = output[1] * output[2];
  Score score{.counted = static_cast<double>(output[0])};
  for (int64_t n = 0; n < output[0]; ++n)
    score.right += are_all_symbols_right(values.data() + n * sequence, output[1], output[2], labels.data() + n * width);
  return score;
}

}  // namespace

Score score_of(DataKind kind, const Shape& input, const Shape& output, const std::vector<double>& values,
               const std::vector<double>& labels) {
  if (kind == DataKind::boxes) return score_of_boxes(input, output, values, labels);
  if (kind == DataKind::speech) return score_of_speech(output, values, labels);
  // Classes are the last axis, or axis 1 of images.
  const bool is_image = output.rank() == 4;
  const int64_t classes = is_image ? output[1] : output[output.rank() - 1],
                pixels = is_image ? output[2] * output[3] : 1;
  HM_CHECK(output.elements() == classes * static_cast<int64_t>(labels.size()),
           "an output " + output.text() + " for " + std::to_string(labels.size()) + " labels");
  Score score;
  for (int64_t i = 0; i < static_cast<int64_t>(labels.size()); ++i) {
    const auto label = static_cast<int64_t>(labels[static_cast<size_t>(i)]);
    if (kind == DataKind::streets && label == kUnlabelled) continue;
    ++score.counted;
    score.right += best(values.data() + i / pixels * pixels * classes + i % pixels, classes, pixels) == label;
  }
  return score;
}

double Evaluation::accuracy_error() const {
  const auto count = static_cast<double>(samples);
  const double q = (accuracy * count + 1) / (count + 2);
  return std::sqrt(q * (1 - q) / count);
}

}  // namespace halfmark::models
