// Cases of softmax with cross-entropy.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/ops/cases/elementwise.h"

namespace halfmark::kernels::ops_cases {

namespace {

Tensor label_tensor(const CaseRequest& request, int64_t count, const std::function<size_t(size_t)>& label) {
  // Always valid labels: a row may refuse to read others.
  return filled_tensor(request, {count}, DType::i32, Layout::plain, [&] {
    std::vector<double> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(label(i));
    return values;
  });
}

struct LossInput {
  Shape shape;
  double bad;  // one logit is this instead; 0: none
};

std::vector<LossInput> loss_inputs(const Axes& axes) {
  std::vector<LossInput> inputs;
  for (const Shape& shape : axes.loss_shapes) inputs.push_back({shape, 0});
  if (!axes.special_values) return inputs;
  for (const double bad : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL})
    inputs.push_back({axes.loss_shapes.front(), bad});
  return inputs;
}

}  // namespace

template <>
void Cases<SoftmaxCrossEntropy>::each(const CaseRequest& request, const RunCase<SoftmaxCrossEntropy>& run_case) {
  for (const auto& [dtype, loss_type, wide] : request.axes.losses)
    for (const LossInput& input : loss_inputs(request.axes)) {
      const Shape& shape = input.shape;
      const double bad = input.bad;
      const auto n = static_cast<size_t>(shape[0]), classes = static_cast<size_t>(shape[1]);
      const Tensor logits = filled_tensor(request, shape, dtype, Layout::plain, [&] {
        std::vector<double> values = random_values(shape.elements(), 1, Fill::normal, 4);
        // exp of these overflows or is 0, in fp64 too: only differences from the largest logit may be used.
        constexpr double kOffsets[] = {0, 1000, -1000, 200, -200};
        for (size_t i = 0; i < values.size(); ++i) values[i] += kOffsets[i / classes % std::size(kOffsets)];
        if (bad != 0) values[values.size() - 2] = bad;
        return values;
      });
      const auto label = [&](size_t i) { return static_cast<size_t>(RandomKey(2).below(i, classes)); };
      const Tensor labels = label_tensor(request, shape[0], label);
      Tensor loss(request.device, {1}, loss_type), log_probabilities(request.device, shape, wide);
      const std::string name =
          text_of({dtype, loss_type, wide}) + " " + shape.text() + (bad != 0 ? " with " + std::to_string(bad) : "");
      run_case(
          name,
          SoftmaxCrossEntropy{.logits = logits, .labels = labels, .loss = loss, .log_probabilities = log_probabilities},
          [&](CaseResult& result) {
            const std::vector<double> z = logits.values();
            const Format& format = wide_format(logits.dtype());
            std::vector<double> p(z.size()), p_slack(z.size());
            double total = 0, total_slack = 0;
            for (size_t i = 0; i < n; ++i) {
              const double* row = &z[i * classes];
              if (std::any_of(row, row + classes, [](double x) { return !(x < HUGE_VAL); })) {  // NaN or infinity
                std::fill_n(&p[i * classes], classes, static_cast<double>(NAN));
                total = static_cast<double>(NAN);
                continue;
              }
              // A logit of -infinity has the probability 0 and adds no error.
              const double largest = *std::max_element(row, row + classes);
              double sum = 0, least = largest;
              for (size_t c = 0; c < classes; ++c) {
                sum += std::exp(row[c] - largest);
                if (std::isfinite(row[c])) least = std::min(least, row[c]);
              }
              // An argument with a relative error of u * range gives exp that error; a library's exp and log are
              // accurate to 4 units.
              const double relative = gamma(static_cast<double>(classes) + 2 * (largest - least) + 12, format);
              // The relative error of the sum is the absolute error of its logarithm.
              for (size_t c = 0; c < classes; ++c) {
                p[i * classes + c] = row[c] - largest - std::log(sum);
                if (std::isfinite(row[c]))
                  p_slack[i * classes + c] =
                      relative + gamma(6, format) * (std::fabs(std::log(sum)) + largest - row[c]) + smallest(format);
              }
              total -= p[i * classes + label(i)];
              total_slack +=
                  relative + gamma(static_cast<double>(n) + 4, format) * (std::fabs(std::log(sum)) + largest - least);
            }
            result.expect_close(log_probabilities, p, p_slack);
            if (!std::isfinite(total)) total_slack = 0;
            result.expect_close(loss, {total / static_cast<double>(n)}, {total_slack / static_cast<double>(n)}, "loss");
          });
    }
}

template <>
void Cases<SoftmaxCrossEntropyBackward>::each(const CaseRequest& request,
                                              const RunCase<SoftmaxCrossEntropyBackward>& run_case) {
  for (const auto& [dtype, loss_type, wide] : request.axes.losses)
    for (const double dloss : request.axes.loss_scales) {
      const Shape& shape = request.axes.loss_shapes.front();
      const auto n = static_cast<size_t>(shape[0]), classes = static_cast<size_t>(shape[1]);
      const Tensor log_probabilities = filled_tensor(request, shape, wide, Layout::plain, [&] {
        std::vector<double> values = random_values(shape.elements(), 1);
        // From 0 to below -100, whose exp underflows in fp32; every fifth is a probability close to 1, as of a label.
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = i % 5 == 0 ? -0x1p-14 * std::fabs(values[i]) : -std::exp(4 * std::fabs(values[i]));
        return values;
      });
      const auto label = [&](size_t i) { return static_cast<size_t>(RandomKey(2).below(i, classes)); };
      const Tensor labels = label_tensor(request, shape[0], label);
      Tensor dlogits(request.device, shape, dtype);
      const std::string name = text_of({wide, dtype}) + " loss scale " + std::to_string(dloss);
      run_case(name,
               SoftmaxCrossEntropyBackward{
                   .log_probabilities = log_probabilities, .labels = labels, .dlogits = dlogits, .dloss = dloss},
               [&](CaseResult& result) {
                 std::vector<double> expected = log_probabilities.values(), slack(expected.size());
                 const Format& format = wide_format(log_probabilities.dtype());
                 const double factor = dloss / static_cast<double>(n);
                 for (size_t i = 0; i < expected.size(); ++i) {
                   const double probability = std::exp(expected[i]);
                   const double one = i % classes == label(i / classes) ? 1 : 0;
                   expected[i] = (probability - one) * factor;
                   // A library's exp is accurate to 4 units; the difference cancels, so its parts count.
                   slack[i] = gamma(8, format) * (probability + one) * std::fabs(factor) +
                              smallest(format) * (1 + std::fabs(factor));
                 }
                 result.expect_close(dlogits, expected, slack);
               });
    }
}

}  // namespace halfmark::kernels::ops_cases
