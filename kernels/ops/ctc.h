// Connectionist temporal classification of one sequence (Graves, Fernandez, Gomez, Schmidhuber, ICML 2006, equations 5
// to 16), in logarithms. T is the arithmetic (float or double).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels::ctc {

// The states of a sequence: blank, first label, blank, second label, ..., blank.
struct Sequence {
  int64_t steps = 0;
  std::span<const int32_t> labels;
  int32_t blank = 0;
  int64_t states() const { return 2 * static_cast<int64_t>(labels.size()) + 1; }
  int32_t label(int64_t state) const { return state % 2 ? labels[static_cast<size_t>(state / 2)] : blank; }
  // Whether the state may follow the one two places before it: not between equal labels, and no blank is skipped.
  bool skips(int64_t state) const { return state % 2 && state >= 3 && label(state) != label(state - 2); }
};

// A row of CtcLoss::targets. Throws Error if it is not one.
inline Sequence sequence_of(std::span<const int32_t> row, int64_t steps, int64_t classes, int32_t blank) {
  const auto most = static_cast<int64_t>(row.size()) - 2;
  HM_CHECK(row[0] >= 1 && row[0] <= steps,
           "ctc_loss: a sequence has " + std::to_string(row[0]) + " steps, not 1 to " + std::to_string(steps));
  HM_CHECK(row[1] >= 0 && row[1] <= most,
           "ctc_loss: a sequence has " + std::to_string(row[1]) + " labels, not 0 to " + std::to_string(most));
  const Sequence sequence{row[0], row.subspan(2, static_cast<size_t>(row[1])), blank};
  for (const int32_t label : sequence.labels) {
    HM_CHECK(label >= 0 && label < classes,
             "ctc_loss: label " + std::to_string(label) + " is not one of " + std::to_string(classes) + " classes");
    HM_CHECK(label != blank, "ctc_loss: label " + std::to_string(label) + " is the blank");
  }
  return sequence;
}

template <class T>
inline constexpr T kNothing = -std::numeric_limits<T>::infinity();  // the logarithm of 0

// log(e^a + e^b)
template <class T>
T log_sum(T a, T b) {
  const T high = a > b ? a : b, low = a > b ? b : a;
  if (high == kNothing<T>) return high;
  return high + std::log1p(std::exp(low - high));
}

// alpha[t][s] for `width` states per step, with -infinity in the states and steps that the sequence does not have.
// log_probabilities: [steps][classes].
template <class T>
void forward_variables(const Sequence& sequence, const T* log_probabilities, int64_t classes, T* alpha, int64_t width,
                       int64_t all_steps) {
  const int64_t states = sequence.states();
  for (int64_t i = 0; i < all_steps * width; ++i) alpha[i] = kNothing<T>;
  alpha[0] = log_probabilities[sequence.blank];
  if (states > 1) alpha[1] = log_probabilities[sequence.label(1)];
  for (int64_t t = 1; t < sequence.steps; ++t) {
    const T *before = alpha + (t - 1) * width, *lp = log_probabilities + t * classes;
    T* now = alpha + t * width;
    for (int64_t s = 0; s < states; ++s) {
      T sum = before[s];
      if (s >= 1) sum = log_sum(sum, before[s - 1]);
      if (sequence.skips(s)) sum = log_sum(sum, before[s - 2]);
      now[s] = sum + lp[sequence.label(s)];
    }
  }
}

// -log p(labels) from the forward variables; infinity if there are too few steps.
template <class T>
T loss_of(const Sequence& sequence, const T* alpha, int64_t width) {
  const T* last = alpha + (sequence.steps - 1) * width;
  const int64_t states = sequence.states();
  return -(states > 1 ? log_sum(last[states - 1], last[states - 2]) : last[0]);
}

// gradient[t][k] = factor (p_tk - p(class k at step t | labels)), the derivative of factor * loss with respect to the
// logits; 0 after the last step.
template <class T>
void gradient_of(const Sequence& sequence, const T* log_probabilities, int64_t classes, const T* alpha, int64_t width,
                 int64_t all_steps, T factor, T* gradient) {
  const int64_t states = sequence.states();
  const T loss = loss_of(sequence, alpha, width);
  std::vector<T> beta(static_cast<size_t>(states), kNothing<T>), next(beta), together(static_cast<size_t>(classes));
  for (int64_t t = all_steps - 1; t >= 0; --t) {
    T* g = gradient + t * classes;
    if (t >= sequence.steps) {
      for (int64_t k = 0; k < classes; ++k) g[k] = T(0);
      continue;
    }
    const T *lp = log_probabilities + t * classes, *a = alpha + t * width;
    for (int64_t s = 0; s < states; ++s) {
      const auto i = static_cast<size_t>(s);
      if (t == sequence.steps - 1) {
        next[i] = s >= states - 2 ? lp[sequence.label(s)] : kNothing<T>;
        continue;
      }
      T sum = beta[i];
      if (s + 1 < states) sum = log_sum(sum, beta[i + 1]);
      if (s + 2 < states && sequence.skips(s + 2)) sum = log_sum(sum, beta[i + 2]);
      next[i] = sum + lp[sequence.label(s)];
    }
    beta.swap(next);
    together.assign(static_cast<size_t>(classes), kNothing<T>);
    for (int64_t s = 0; s < states; ++s) {
      T& sum = together[static_cast<size_t>(sequence.label(s))];
      sum = log_sum(sum, a[s] + beta[static_cast<size_t>(s)]);
    }
    // Both factors of a product of forward and backward variables contain the probability of the class.
    for (int64_t k = 0; k < classes; ++k)
      g[k] = factor * (std::exp(lp[k]) - std::exp(together[static_cast<size_t>(k)] + loss - lp[k]));
  }
}

}  // namespace halfmark::kernels::ctc
