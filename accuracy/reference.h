// Numbers of the fp64 reference itself. Errors are measured relative to the fp64 reference, which runs the same layers:
// a changed layer changes both, and no error grows. The numbers here let the gate compare the references of two builds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// Element `index` of the fixed random vector of this name: uniform in [-sqrt 3, sqrt 3), so its variance is 1 and the
// inner product with t is of the size of |t|. FNV-1a and SplitMix64, which share no code with kernels/tensor/random.h:
// a changed generator there does not change these numbers.
double projection_weight(uint64_t name, uint64_t index);
uint64_t projection_name(std::string_view name);

// Norms and projections by place, and single numbers. A place may hold several tensors.
class ReferenceNumbers {
 public:
  // `tensor` is the name of the values in their place; it chooses the random vector.
  void add(const std::string& at, std::string_view tensor, std::span<const double> values);
  void loss(const std::string& at, double value) { losses_[at] = value; }
  void accuracy(const std::string& at, double value) { accuracies_[at] = value; }
  // Everything under one place.
  void add_to(FindingsWriter& out) const;
  // The sum over all places, as one norm and one projection at "all", and the losses.
  void add_summary_to(FindingsWriter& out) const;

 private:
  double sum_of_all() const;
  struct Place {
    double squares = 0, projection = 0;
  };
  std::map<std::string, Place> places_;
  std::map<std::string, double> losses_, accuracies_;
};

// The rows of these metrics, for the tables of the harnesses that write them.
std::vector<MetricRow> with_reference_rows(std::vector<MetricRow> rows);

// One step of the fp64 reference with the inputs as drawn: data, initial values, output, loss, gradients, and everything
// that the step changes. Then forward and backward on special inputs (places "special/..."): values on a coarse grid,
// with ties, zeros and a constant channel, and parameters with rows of zeros. There, maxima tie, ReLU sees 0 and a
// variance is 0. Sums of such values are exact, so that no rounding decides a tie. Cached by subject, seed and settings.
std::shared_ptr<const ReferenceNumbers> step_numbers(const TrialSpec& spec);

// Gives a trial of the fp64 reference the special parameters and inputs above, as its loaded batch.
void make_special(Trial& trial);

// A few steps of training of the fp64 reference with the settings of the trial, and its evaluation; then a training
// ("overflow/...") with weight decay and a dynamic loss scale, in which one step overflows and the scale grows twice.
// Last, the loss scaling of the policy, step by step (places "scaler/..."). All but the last are cached.
std::shared_ptr<const ReferenceNumbers> training_numbers(const TrialSpec& spec);

}  // namespace halfmark::accuracy
