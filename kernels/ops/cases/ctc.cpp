// Cases of CTC. The expected results sum over every path of classes, which is possible for few steps only.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops/cases/elementwise.h"

namespace halfmark::kernels::ops_cases {

namespace {

// Some sequences of up to five steps over three classes and the blank, which is class 1.
struct CtcCase {
  static constexpr size_t kSteps = 5, kClasses = 4, kLabels = 3, kWidth = 2 * kLabels + 1;
  static constexpr int kBlank = 1;
  struct Row {
    size_t steps;
    std::vector<int> labels;
  };
  std::vector<Row> rows;
  Tensor targets;

  CtcCase(const CaseRequest& request, bool impossible)
      : rows{{5, {0, 2}}, {5, {3, 3}}, {3, {2, 0, 3}}, {4, {}}, {1, {3}}} {
    if (impossible) rows.push_back({3, {0, 0, 2}});  // a blank is needed between equal labels
    std::vector<double> values;
    for (const Row& row : rows) {
      values.push_back(static_cast<double>(row.steps)), values.push_back(static_cast<double>(row.labels.size()));
      for (size_t i = 0; i < kLabels; ++i) values.push_back(i < row.labels.size() ? row.labels[i] : 0);
    }
    targets = Tensor::from(request.device, {count(), 2 + kLabels}, DType::i32, values);
  }
  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  Shape scores() const { return {count(), kSteps, kClasses}; }
  Shape states() const { return {count(), kSteps, kWidth}; }

  // visit(path, probability) for each path of classes that stands for the labels of the row.
  void each_path(size_t row, const std::vector<double>& logs,
                 const std::function<void(const std::vector<int>&, double)>& visit) const {
    const Row& r = rows[row];
    std::vector<int> path(r.steps);
    for (;;) {
      std::vector<int> collapsed;
      double log_probability = 0;
      for (size_t t = 0; t < r.steps; ++t) {
        if (path[t] != kBlank && (t == 0 || path[t] != path[t - 1])) collapsed.push_back(path[t]);
        log_probability += logs[(row * kSteps + t) * kClasses + static_cast<size_t>(path[t])];
      }
      if (collapsed == r.labels) visit(path, std::exp(log_probability));
      size_t t = 0;
      while (t < r.steps && ++path[t] == static_cast<int>(kClasses)) path[t++] = 0;
      if (t == r.steps) return;
    }
  }
  // The probability of the labels.
  double probability(size_t row, const std::vector<double>& logs) const {
    double sum = 0;
    each_path(row, logs, [&](const std::vector<int>&, double p) { sum += p; });
    return sum;
  }
  // The probability of being in each state after each step, by the recursion on probabilities.
  std::vector<double> alpha(size_t row, const std::vector<double>& logs) const {
    const Row& r = rows[row];
    std::vector<double> a(kSteps * kWidth);
    const size_t states = 2 * r.labels.size() + 1;
    const auto label = [&](size_t s) { return s % 2 ? r.labels[s / 2] : kBlank; };
    for (size_t t = 0; t < r.steps; ++t)
      for (size_t s = 0; s < states; ++s) {
        double sum = t == 0 ? (s < 2 ? 1 : 0) : a[(t - 1) * kWidth + s];
        if (t > 0 && s > 0) sum += a[(t - 1) * kWidth + s - 1];
        if (t > 0 && s > 2 && s % 2 && label(s) != label(s - 2)) sum += a[(t - 1) * kWidth + s - 2];
        a[t * kWidth + s] = sum * std::exp(logs[(row * kSteps + t) * kClasses + static_cast<size_t>(label(s))]);
      }
    return a;
  }
  double labels_or_one(size_t row) const { return std::max<double>(1, static_cast<double>(rows[row].labels.size())); }
};

double largest_size(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return largest;
}

// f(name, case, zero_infinity, types)
void each_ctc(const CaseRequest& request, auto&& f) {
  for (const LossTypes& types : request.axes.losses)
    for (const bool impossible : request.axes.ctc_impossible)
      for (const bool zero : request.axes.ctc_zero_infinity)
        f(text_of({types.logits, types.loss, types.log_probabilities}) + (impossible ? " impossible" : "") +
              (zero ? " zero infinity" : ""),
          CtcCase(request, impossible), zero, types);
}

}  // namespace

template <>
void Cases<CtcLoss>::each(const CaseRequest& request, const RunCase<CtcLoss>& run_case) {
  each_ctc(request, [&](const std::string& name, const CtcCase& one, bool zero, const LossTypes& types) {
    const Tensor logits = random_tensor(request, one.scores(), types.logits, Layout::plain, 1, Fill::normal, 2);
    Tensor loss(request.device, {1}, types.loss), logs(request.device, one.scores(), types.log_probabilities),
        alpha(request.device, one.states(), wide_type(types.logits));
    run_case(name,
             CtcLoss{.logits = logits,
                     .targets = one.targets,
                     .loss = loss,
                     .log_probabilities = logs,
                     .alpha = alpha,
                     .blank = CtcCase::kBlank,
                     .zero_infinity = zero},
             [&](CaseResult& result) {
               const std::vector<double> z = logits.values();
               const Format& format = wide_format(types.logits);
               std::vector<double> p(z.size());
               for (size_t i = 0; i < z.size(); i += CtcCase::kClasses) {
                 double sum = 0;
                 for (size_t c = 0; c < CtcCase::kClasses; ++c) sum += std::exp(z[i + c]);
                 for (size_t c = 0; c < CtcCase::kClasses; ++c) p[i + c] = z[i + c] - std::log(sum);
               }
               const double log_slack = gamma(16 + 2 * largest_size(z), format) * (1 + largest_size(p));
               result.expect_close(logs, p, std::vector<double>(p.size(), log_slack), "log_probabilities");
               // A sum of logarithms is off by the sum of their errors, and each step rounds a few times.
               const double step_slack = log_slack + gamma(8, format) * (4 + CtcCase::kSteps * largest_size(p));
               const double all_slack = CtcCase::kSteps * step_slack;
               std::vector<double> a, a_slack;
               double total = 0;
               for (size_t row = 0; row < one.rows.size(); ++row) {
                 for (const double value : one.alpha(row, p)) a.push_back(std::log(value));
                 const double nll = -std::log(one.probability(row, p));
                 total += zero && nll == HUGE_VAL ? 0 : nll / one.labels_or_one(row);
               }
               for (const double value : a) a_slack.push_back(std::isfinite(value) ? all_slack : 0);
               result.expect_close(alpha, a, a_slack, "alpha");
               const auto count = static_cast<double>(one.rows.size());
               result.expect_close(loss, {total / count}, {std::isfinite(total) ? 2 * all_slack : 0}, "loss");
             });
  });
}

template <>
void Cases<CtcLossBackward>::each(const CaseRequest& request, const RunCase<CtcLossBackward>& run_case) {
  each_ctc(request, [&](const std::string& name, const CtcCase& one, bool zero, const LossTypes& types) {
    for (const double dloss : request.axes.loss_scales) {
      const Tensor logs = filled_tensor(request, one.scores(), types.log_probabilities, Layout::plain, [&] {
        std::vector<double> values = random_values(one.scores().elements(), 1);
        for (double& value : values) value = -0.25 - 2 * std::fabs(value);
        return values;
      });
      const Tensor alpha = filled_tensor(request, one.states(), wide_type(types.log_probabilities), Layout::plain, [&] {
        std::vector<double> values;
        for (size_t row = 0; row < one.rows.size(); ++row)
          for (const double value : one.alpha(row, logs.values())) values.push_back(std::log(value));
        return values;
      });
      Tensor gradient(request.device, one.scores(), types.logits);
      run_case(name + " loss scale " + std::to_string(dloss),
               CtcLossBackward{.log_probabilities = logs,
                               .targets = one.targets,
                               .alpha = alpha,
                               .dlogits = gradient,
                               .blank = CtcCase::kBlank,
                               .zero_infinity = zero,
                               .dloss = dloss},
               [&](CaseResult& result) {
                 const std::vector<double> p = logs.values();
                 const Format& format = wide_format(types.log_probabilities);
                 std::vector<double> expected(p.size()), slack(p.size());
                 // The error of a sum of two variables and the loss, in an exponent.
                 const double exponent_slack =
                     gamma(8 * CtcCase::kSteps + 30, format) * (10 + 3 * CtcCase::kSteps * largest_size(p));
                 for (size_t row = 0; row < one.rows.size(); ++row) {
                   const double all = one.probability(row, p);
                   if (all == 0 && zero) continue;
                   const double factor = dloss / static_cast<double>(one.rows.size()) / one.labels_or_one(row);
                   std::vector<double> share(CtcCase::kSteps * CtcCase::kClasses);
                   one.each_path(row, p, [&](const std::vector<int>& path, double probability) {
                     for (size_t t = 0; t < path.size(); ++t)
                       share[t * CtcCase::kClasses + static_cast<size_t>(path[t])] += probability / all;
                   });
                   for (size_t i = 0; i < one.rows[row].steps * CtcCase::kClasses; ++i) {
                     const size_t at = row * CtcCase::kSteps * CtcCase::kClasses + i;
                     const double own = std::exp(p[at]);
                     expected[at] = all == 0 ? static_cast<double>(NAN) : (own - share[i]) * factor;
                     slack[at] = all == 0 ? 0
                                          : (gamma(10, format) * own + 2 * exponent_slack * share[i]) * factor +
                                                smallest(format) * (1 + factor);
                   }
                 }
                 result.expect_close(gradient, expected, slack);
               });
    }
  });
}

}  // namespace halfmark::kernels::ops_cases
