// What a model answers to held-out samples: compared with fp64, and the metric of its task.
#pragma once

#include <cstdint>
#include <vector>

#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

struct AnswerErrors {
  double rms = 0, max = 0;  // of (answer - exact answer), over the rms of the exact ones; NaN if an answer is
  double flips = 0;         // predictions unlike the exact ones
  double predictions = 0;   // of each
  double nonfinite = 0;     // share of the answers
};
AnswerErrors compare_answers(DataKind kind, const Answers& answers, const Answers& exact);

// The class with the largest number, the first of equal ones, for each prediction of an output; -1: one of its numbers is NaN.
// Of boxes, the four numbers of a place are left out.
std::vector<int64_t> predicted_classes(DataKind kind, const Shape& output, const std::vector<double>& values);

// The metric of the task. Of streets: the mean over the classes that occur of intersection / union of the labelled pixels of
// all samples (mIoU). Of other data: the share of right answers (models/score.h).
double metric_of(DataKind kind, const Answers& answers);

}  // namespace halfmark::accuracy
