#include "accuracy/experiments/answers.h"

#include <cmath>
#include <cstddef>
#include <map>

#include "kernels/number/error.h"
#include "models/score.h"

namespace halfmark::accuracy {

AnswerErrors compare_answers(DataKind kind, const Answers& answers, const Answers& exact) {
  HM_CHECK(answers.values.size() == exact.values.size(), "answers to other samples cannot be compared");
  AnswerErrors found;
  double squares = 0, exact_squares = 0, count = 0;
  for (size_t batch = 0; batch < answers.values.size(); ++batch) {
    const std::vector<double>&values = answers.values[batch], &wanted = exact.values[batch];
    HM_CHECK(values.size() == wanted.size(), "answers of other shapes cannot be compared");
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::fabs(values[i] - wanted[i]);
      squares += difference * difference, exact_squares += wanted[i] * wanted[i];
      if (std::isnan(difference) || difference > found.max) found.max = difference;  // a NaN stays
      found.nonfinite += !std::isfinite(values[i]);
    }
    count += static_cast<double>(values.size());
    const std::vector<int64_t> classes = predicted_classes(kind, answers.outputs[batch], values),
                               right = predicted_classes(kind, exact.outputs[batch], wanted);
    for (size_t i = 0; i < classes.size(); ++i) found.flips += classes[i] != right[i];
    found.predictions += static_cast<double>(classes.size());
  }
  const double scale = std::sqrt(exact_squares / count);
  found.rms = std::sqrt(squares / count) / scale, found.max /= scale, found.nonfinite /= count;
  return found;
}

std::vector<int64_t> predicted_classes(DataKind kind, const Shape& output, const std::vector<double>& values) {
  const bool is_image = output.rank() == 4;
  const int64_t width = is_image ? output[1] : output[output.rank() - 1], step = is_image ? output[2] * output[3] : 1;
  const int64_t classes = kind == DataKind::boxes ? width - 4 : width;
  std::vector<int64_t> winners(values.size() / static_cast<size_t>(width));
  for (size_t i = 0; i < winners.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const double* first = values.data() + place / step * step * width + place % step;
    int64_t& winner = winners[i];
    for (int64_t c = 0; c < classes && winner >= 0; ++c) {
      if (std::isnan(first[c * step]))
        winner = -1;
      else if (first[c * step] > first[winner * step])
        winner = c;
    }
  }
  return winners;
}

namespace {

double mean_overlap(const Answers& answers) {
  struct Counts {
    double both = 0, either = 0;
  };
  std::map<int64_t, Counts> classes;
  for (size_t batch = 0; batch < answers.values.size(); ++batch) {
    const std::vector<int64_t> predicted =
        predicted_classes(DataKind::streets, answers.outputs[batch], answers.values[batch]);
    for (size_t i = 0; i < predicted.size(); ++i) {
      const auto label = static_cast<int64_t>(answers.labels[batch][i]);
      if (label == kUnlabelled) continue;
      if (predicted[i] == label) {
        ++classes[label].both, ++classes[label].either;
      } else {
        ++classes[label].either;
        if (predicted[i] >= 0) ++classes[predicted[i]].either;
      }
    }
  }
  double sum = 0;
  for (const auto& [number, counts] : classes) sum += counts.both / counts.either;
  return classes.empty() ? 0 : sum / static_cast<double>(classes.size());
}

}  // namespace

double metric_of(DataKind kind, const Answers& answers) {
  if (kind == DataKind::streets) return mean_overlap(answers);
  Score all;
  for (size_t i = 0; i < answers.values.size(); ++i) {
    const Score one = score_of(kind, answers.inputs[i], answers.outputs[i], answers.values[i], answers.labels[i]);
    all.right += one.right, all.counted += one.counted;
  }
  return all.share();
}

}  // namespace halfmark::accuracy
