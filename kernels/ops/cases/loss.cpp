// Cases of the element-wise losses and of cross-entropy with weights, smoothing and ignored labels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/ops/cases/elementwise.h"
#include "kernels/ops/losses.h"

namespace halfmark::kernels::ops_cases {

namespace {

// A loss of one element in fp64 from its definition. The sizes are the sums of the magnitudes of the terms, whose
// roundings the allowed error counts.
struct PlainElementLoss {
  double value, slope, value_size, slope_size;
};

double plain_share(double x) { return 1 / (1 + std::exp(-x)); }

PlainElementLoss plain_mse(double x, double y, double, double) {
  const double d = x - y;
  return {d * d, 2 * d, d * d, 2 * std::fabs(d)};
}

PlainElementLoss plain_smooth_l1(double x, double y, double beta, double) {
  const double d = x - y, sign = d > 0 ? 1 : -1, size = std::fabs(d);
  const bool inside = size < beta;
  const double value = inside ? d * d / (2 * beta) : size - beta / 2;
  const double slope = inside ? d / beta : (d == 0 ? 0 : sign);
  return {value, std::isnan(d) ? d : slope, size + beta / 2, 1};
}

PlainElementLoss plain_binary_cross_entropy_with_logits(double x, double y, double a, double) {
  const double p = plain_share(x), q = plain_share(-x);
  const double right = a * y * -std::log(p), wrong = (1 - y) * -std::log(q);
  return {right + wrong, (1 - y) * p - a * y * q, right + wrong + std::fabs(x) * (1 + std::fabs(1 - a)),
          (1 - y) * p + a * y * q};
}

PlainElementLoss plain_binary_cross_entropy(double x, double y, double, double) {
  const double right = -y * std::fmax(std::log(x), -100), wrong = -(1 - y) * std::fmax(std::log(1 - x), -100);
  const double slope = std::isnan(x) ? x : (x - y) / std::fmax((1 - x) * x, 1e-12);
  return {right + wrong, slope, right + wrong, std::fabs(slope)};
}

// The derivatives of the two products, for y = 1 and y = 0, mixed as the definition mixes p_t and alpha_t.
PlainElementLoss plain_focal(double x, double y, double a, double b) {
  const double p = plain_share(x), q = plain_share(-x);
  const double weight = a < 0 ? 1 : a * y + (1 - a) * (1 - y),
               weight_size = a < 0 ? 1 : a * y + std::fabs(1 - a) * (1 - y), pt = p * y + q * (1 - y), miss = 1 - pt;
  const double entropy = -y * std::log(p) - (1 - y) * std::log(q), power = std::pow(miss, b);
  const double by_entropy = power * (p - y), by_power = -b * std::pow(miss, b - 1) * (2 * y - 1) * p * q * entropy;
  return {weight * power * entropy, weight * (by_entropy + (b == 0 ? 0 : by_power)),
          weight_size * power * (entropy + std::fabs(x)),
          weight_size * (power * ((1 - y) * p + y * q) + b * std::pow(miss, b - 1) * p * q * (entropy + std::fabs(x)))};
}

enum class Outputs : uint8_t { any, probabilities };
enum class Targets : uint8_t { any, labels };

struct PlainLoss {
  std::string_view name;
  PlainElementLoss (*of)(double x, double y, double a, double b);
  Outputs outputs;
  Targets targets;
  // Roundings of an fp32 evaluation: about ten operations and library functions accurate to 4 units; a power multiplies
  // the error of its base by b.
  double steps = 20, steps_for_b = 0;
};
constexpr PlainLoss kPlainLosses[] = {
    {losses::Mse::name, plain_mse, Outputs::any, Targets::any},
    {losses::SmoothL1::name, plain_smooth_l1, Outputs::any, Targets::any},
    {losses::BinaryCrossEntropyWithLogits::name, plain_binary_cross_entropy_with_logits, Outputs::any, Targets::labels},
    {losses::BinaryCrossEntropy::name, plain_binary_cross_entropy, Outputs::probabilities, Targets::labels},
    {losses::Focal::name, plain_focal, Outputs::any, Targets::labels, 40, 20},
};

const PlainLoss& plain_loss(std::string_view name) {
  const auto* found = std::ranges::find(kPlainLosses, name, &PlainLoss::name);
  HM_CHECK(found != std::end(kPlainLosses), std::string(name) + " has no definition in kPlainLosses");
  return *found;
}

// f(name, output, target, a, b, loss dtype)
void each_loss_operands(const CaseRequest& request, const ElementLossRow& row, const PlainLoss& plain, auto&& f) {
  for (const auto& [dtype, loss_type, wide] : request.axes.losses)
    for (const std::vector<double>& arguments : request.axes.loss_arguments)
      for (const bool image : request.axes.loss_layouts) {
        if (!arguments.empty() && !row.takes_arguments) continue;
        const double a = arguments.empty() ? row.a : arguments[0], b = arguments.empty() ? row.b : arguments[1];
        const Shape shape = image ? Shape{2, 5, 3, 7} : request.axes.loss_shapes.front();
        const Layout layout = image ? Layout::nhwc : Layout::plain;
        const bool probability = plain.outputs == Outputs::probabilities, labels = plain.targets == Targets::labels;
        const Tensor output = filled_tensor(request, shape, dtype, layout, [&] {
          std::vector<double> values = random_values(shape.elements(), 1, Fill::normal, 3);
          if (probability)
            for (double& value : values) value = plain_share(value);
          values[0] = probability ? 0 : 0.5, values[1] = probability ? 1 : -0.5, values[2] = 0;
          return values;
        });
        const Tensor target = filled_tensor(request, shape, dtype, layout, [&] {
          std::vector<double> values = random_values(shape.elements(), 2);
          if (labels)
            for (double& value : values) value = value > 0.5 ? 1 : (value > 0 ? 0.25 : 0);
          values[2] = labels ? 1 : 0;  // equal to the output, where that is no label
          return values;
        });
        f(text_of({dtype, loss_type}) + " " + shape.text() + " " + std::string(name_of(layout)) + " " +
              std::to_string(a) + " " + std::to_string(b),
          output, target, a, b, loss_type);
      }
}

// f(words, weights): without weights, and with weights of which the first and the fourth are 0.
void each_weighting(const CaseRequest& request, const Tensor& output, auto&& f) {
  f("", nullptr);
  if (!request.axes.norm_forms) return;
  const Tensor weights = filled_tensor(request, output.shape(), output.dtype(),
                                       output.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain, [&] {
                                         std::vector<double> values = random_values(output.elements(), 9);
                                         for (double& value : values) value = std::fabs(value) / 16;
                                         values[0] = values[3] = 0;
                                         return values;
                                       });
  f(" weighted", &weights);
}

}  // namespace

void each_element_loss(const CaseRequest& request, const ElementLossRow& row, const RunElementLoss& run_case) {
  const PlainLoss& plain = plain_loss(row.name);
  each_loss_operands(
      request, row, plain,
      [&](const std::string& name, const Tensor& output, const Tensor& target, double a, double b, DType loss_type) {
        Tensor loss(request.device, {1}, loss_type);
        each_weighting(request, output, [&](const std::string& weighting, const Tensor* weights) {
          run_case(name + weighting, {output, target, loss, a, b, 1, weights}, [&](CaseResult& result) {
            const std::vector<double> x = output.values(), y = target.values(),
                                      w = weights ? weights->values() : std::vector<double>(x.size(), 1);
            const Format& format = wide_format(output.dtype());
            const auto terms = static_cast<double>(x.size()), count = weights ? 1 : terms;
            double sum = 0, size = 0;
            for (size_t i = 0; i < x.size(); ++i) {
              const PlainElementLoss one = plain.of(x[i], y[i], a, b);
              if (w[i] != 0) sum += w[i] * one.value, size += w[i] * one.value_size;
            }
            const double slack =
                gamma(plain.steps + plain.steps_for_b * b + terms, format) * size / count + smallest(format);
            result.expect_close(loss, {sum / count}, {slack}, "loss");
          });
        });
      });
}

void each_element_loss_backward(const CaseRequest& request, const ElementLossRow& row, const RunElementLoss& run_case) {
  const PlainLoss& plain = plain_loss(row.name);
  each_loss_operands(
      request, row, plain,
      [&](const std::string& name, const Tensor& output, const Tensor& target, double a, double b, DType) {
        if (request.axes.special_values && request.filled) {
          std::vector<double> values = output.values();
          values[3] = static_cast<double>(NAN);
          Tensor(output).set_values(values);
        }
        for (const double dloss : request.axes.loss_scales) {
          Tensor gradient(request.device, output.shape(), output.dtype(), output.layout());
          each_weighting(request, output, [&](const std::string& weighting, const Tensor* weights) {
            const std::string scaled = name + weighting + " loss scale " + std::to_string(dloss);
            run_case(scaled, {output, target, gradient, a, b, dloss, weights}, [&](CaseResult& result) {
              const std::vector<double> x = output.values(), y = target.values(),
                                        w = weights ? weights->values() : std::vector<double>(x.size(), 1);
              const Format& format = wide_format(output.dtype());
              std::vector<double> expected(x.size()), slack(x.size());
              for (size_t i = 0; i < x.size(); ++i) {
                const double factor = w[i] * dloss / (weights ? 1 : static_cast<double>(x.size()));
                const PlainElementLoss one = plain.of(x[i], y[i], a, b);
                if (w[i] == 0) continue;
                expected[i] = one.slope * factor;
                if (std::isfinite(one.slope))
                  slack[i] = gamma(plain.steps + plain.steps_for_b * b, format) * one.slope_size * factor +
                             smallest(format) * (1 + factor);
              }
              result.expect_close(gradient, expected, slack);
            });
          });
        }
      });
}

namespace {

// The weight of class 0, and the score of label 0 in the first position.
enum class Extreme : uint8_t { none, infinite_weight, infinite_weight_of_no_label, no_weight_and_no_chance };

std::vector<Extreme> extremes(const CaseRequest& request, const LabelForm& form) {
  if (!request.axes.special_values || !form.weights || form.smoothing != 0) return {Extreme::none};
  return {Extreme::none, Extreme::infinite_weight, Extreme::infinite_weight_of_no_label,
          Extreme::no_weight_and_no_chance};
}

// Labels, weights and scores of one form, and its numbers in fp64.
struct LabelCase {
  const LabelForm& form;
  Extreme extreme;
  size_t samples, classes, pixels;
  Tensor labels, weights;

  LabelCase(const CaseRequest& request, const LabelForm& of, DType wide, Extreme which)
      : form(of),
        extreme(which),
        samples(static_cast<size_t>(of.shape[0])),
        classes(static_cast<size_t>(of.shape[1])),
        pixels(of.shape.rank() == 4 ? static_cast<size_t>(of.shape[2] * of.shape[3]) : 1) {
    const Shape positions = of.shape.rank() == 4 ? Shape{of.shape[0], of.shape[2], of.shape[3]} : Shape{of.shape[0]};
    labels = filled_tensor(request, positions, DType::i32, Layout::plain, [&] {
      std::vector<double> values(samples * pixels);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(label(i));
      return values;
    });
    if (of.weights) weights = positive_tensor(request, {of.shape[1]}, wide, 3);
    if (extreme == Extreme::none || !request.filled) return;
    std::vector<double> values = weights.values();
    values[0] = extreme == Extreme::no_weight_and_no_chance ? 0 : HUGE_VAL;
    weights.set_values(values);
  }
  int64_t label(size_t position) const {
    if (form.ignores && position % 3 == 1) return kIgnored;
    if (position == 0 && extreme != Extreme::none) return extreme == Extreme::infinite_weight_of_no_label ? 1 : 0;
    const auto label = static_cast<int64_t>(RandomKey(2).below(position, classes));
    return label == 0 && extreme != Extreme::none ? 1 : label;
  }
  size_t place(size_t position, size_t c) const {
    return (position / pixels * classes + c) * pixels + position % pixels;
  }
  double weight(size_t c) const { return weights.empty() ? 1 : weights.values()[c]; }
  static constexpr int64_t kIgnored = 255;  // as in segmentation
};

std::string label_text(const LabelForm& form, Extreme extreme, std::initializer_list<DType> dtypes) {
  constexpr const char* kWords[] = {"", " infinite weight", " infinite weight of no label", " no weight and no chance"};
  return text_of(dtypes) + " " + form.shape.text() + (form.weights ? " weights" : "") +
         (form.ignores ? " ignores" : "") + " smoothing " + std::to_string(form.smoothing) +
         kWords[static_cast<size_t>(extreme)];
}

}  // namespace

template <>
void Cases<CrossEntropy>::each(const CaseRequest& request, const RunCase<CrossEntropy>& run_case) {
  for (const auto& [dtype, loss_type, wide] : request.axes.losses)
    for (const LabelForm& form : request.axes.label_forms)
      for (const Extreme extreme : extremes(request, form)) {
        const LabelCase one(request, form, dtype, extreme);
        Tensor logits = random_tensor(request, form.shape, dtype, Layout::plain, 1, Fill::normal, 4);
        if (extreme == Extreme::no_weight_and_no_chance && request.filled) {
          std::vector<double> values = logits.values();
          values[0] = -HUGE_VAL;
          logits.set_values(values);
        }
        Tensor loss(request.device, {1}, loss_type), logs(request.device, form.shape, wide),
            total(request.device, {1}, wide_type(dtype));
        run_case(
            label_text(form, extreme, {dtype, loss_type, wide}),
            CrossEntropy{.logits = logits,
                         .labels = one.labels,
                         .weights = one.weights,
                         .loss = loss,
                         .log_probabilities = logs,
                         .total_weight = total,
                         .smoothing = form.smoothing,
                         .ignored = LabelCase::kIgnored},
            [&](CaseResult& result) {
              const std::vector<double> z = logits.values();
              const Format& format = wide_format(logits.dtype());
              const auto k = static_cast<double>(one.classes);
              std::vector<double> p(z.size()), p_slack(z.size());
              double sum = 0, sum_slack = 0, weights = 0;
              for (size_t i = 0; i < one.samples * one.pixels; ++i) {
                double largest = -HUGE_VAL, least = HUGE_VAL, exponentials = 0;
                for (size_t c = 0; c < one.classes; ++c)
                  largest = std::max(largest, z[one.place(i, c)]),
                  least = std::isinf(z[one.place(i, c)]) ? least : std::min(least, z[one.place(i, c)]);
                for (size_t c = 0; c < one.classes; ++c) exponentials += std::exp(z[one.place(i, c)] - largest);
                const double log_sum = std::log(exponentials), range = largest - least + std::fabs(log_sum);
                const double slack = gamma(k + 2 * range + 12, format) + gamma(6, format) * range + smallest(format);
                for (size_t c = 0; c < one.classes; ++c)
                  p[one.place(i, c)] = z[one.place(i, c)] - largest - log_sum, p_slack[one.place(i, c)] = slack;
                const int64_t label = one.label(i);
                if (label == LabelCase::kIgnored) continue;
                const double at_label = one.weight(static_cast<size_t>(label));
                weights += at_label;
                double size = (1 - form.smoothing) * at_label;
                sum -= size * p[one.place(i, static_cast<size_t>(label))];
                for (size_t c = 0; c < one.classes && form.smoothing != 0; ++c) {
                  const double share = form.smoothing / k * one.weight(c);
                  sum -= share * p[one.place(i, c)], size += share;
                }
                sum_slack += size * (slack + gamma(static_cast<double>(z.size()) + 8, format) * range);
              }
              result.expect_close(logs, p, p_slack, "log_probabilities");
              result.expect_close(total, {weights},
                                  {std::isinf(weights) ? 0 : gamma(static_cast<double>(z.size()), format) * weights},
                                  "total_weight");
              result.expect_close(loss, {sum / weights}, {std::isnan(sum / weights) ? 0 : sum_slack / weights}, "loss");
            });
      }
}

template <>
void Cases<CrossEntropyBackward>::each(const CaseRequest& request, const RunCase<CrossEntropyBackward>& run_case) {
  for (const auto& [dtype, loss_type, wide] : request.axes.losses)
    for (const LabelForm& form : request.axes.label_forms)
      for (const Extreme extreme : extremes(request, form))
        for (const double dloss : request.axes.loss_scales) {
          const LabelCase one(request, form, dtype, extreme);
          const Tensor logs = filled_tensor(request, form.shape, wide, Layout::plain, [&] {
            std::vector<double> values = random_values(form.shape.elements(), 1);
            for (double& value : values) value = -std::exp(3 * std::fabs(value) - 3);
            if (extreme == Extreme::no_weight_and_no_chance) values[0] = -HUGE_VAL;
            return values;
          });
          const Tensor total = Tensor::from(request.device, {1}, wide_type(dtype), std::vector<double>{5.25});
          Tensor gradient(request.device, form.shape, dtype);
          run_case(label_text(form, extreme, {wide, dtype}) + " loss scale " + std::to_string(dloss),
                   CrossEntropyBackward{.log_probabilities = logs,
                                        .labels = one.labels,
                                        .weights = one.weights,
                                        .total_weight = total,
                                        .dlogits = gradient,
                                        .smoothing = form.smoothing,
                                        .ignored = LabelCase::kIgnored,
                                        .dloss = dloss},
                   [&](CaseResult& result) {
                     const std::vector<double> log_values = logs.values();
                     const Format& format = wide_format(logs.dtype());
                     const auto k = static_cast<double>(one.classes);
                     // Without smoothing there is no such term: 0 times an infinite weight would be NaN.
                     const double soft = form.smoothing / k;
                     double soft_all = 0;
                     for (size_t c = 0; c < one.classes && soft != 0; ++c) soft_all += soft * one.weight(c);
                     std::vector<double> expected(log_values.size()), slack(log_values.size());
                     for (size_t i = 0; i < one.samples * one.pixels; ++i) {
                       const int64_t label = one.label(i);
                       if (label == LabelCase::kIgnored) continue;
                       const double hard = (1 - form.smoothing) * one.weight(static_cast<size_t>(label)),
                                    factor = dloss / 5.25;
                       for (size_t c = 0; c < one.classes; ++c) {
                         const size_t at = one.place(i, c);
                         const double q = (static_cast<int64_t>(c) == label ? hard : 0) +
                                          (soft == 0 ? 0 : soft * one.weight(c)),
                                      p = std::exp(log_values[at]) * (hard + soft_all);
                         expected[at] = (p - q) * factor;
                         if (std::isfinite(expected[at]))
                           slack[at] = gamma(16 + k, format) * (p + q) * factor + smallest(format) * (1 + factor);
                       }
                     }
                     result.expect_close(gradient, expected, slack);
                   });
        }
}

}  // namespace halfmark::kernels::ops_cases
