// The harness `overflow`: the weights of a network grow by a small factor at each step until numbers overflow. How many steps
// before the first infinity does a warning at half of the largest fp16 number come?
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/trial_values.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& overflow_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"overflow.first_warning", "1", Better::neither, information,
       "the first step with a magnitude above 32768, or an infinity or NaN; at: activations, or gradients as stored "
       "(with the "
       "loss scale); infinity: none in all steps"},
      {"overflow.first_nonfinite", "1", Better::higher, information,
       "the first step with an infinity or NaN, likewise"},
      {"overflow.lead", "1", Better::higher, information,
       "first_nonfinite - first_warning; infinity: nothing overflowed"},
      {"overflow.warned_at", "1", Better::neither, information,
       "the step of the first warning; at: the first tensor with it"},
      {"overflow.overflowed_at", "1", Better::neither, information,
       "the step of the first infinity or NaN; at: the first tensor with it"},
      {"overflow.nonfinite_loss", "1", Better::higher, information, "the first step whose loss is not finite"},
      {"overflow.largest", "1", Better::neither, information, "over the steps: the largest magnitude of activations"},
      {"overflow.headroom", "bit", Better::higher, information,
       "over the steps: log2 of (largest fp16 number / that magnitude); -infinity for an infinity"},
      {"overflow.steps", "1", Better::neither, information,
       "steps that ran: until an activation is not finite, at most `steps`"},
      {"overflow.growth_in_all", "1", Better::neither, information, "factor of the weights in the last of them"},
  };
  return rows;
}

constexpr double kWarning = 32768;  // 2^15: one bit below the largest numbers of fp16
constexpr size_t kMostPoints = 256;

// What happened to the tensors of one kind.
struct FirstTimes {
  double warning = std::numeric_limits<double>::infinity(), nonfinite = warning;
  std::string warned_at, overflowed_at;
  double largest = 0;  // of this step

  void look(const std::string& name, const Tensor& tensor, double step) {
    if (!is_floating(tensor.dtype())) return;
    double most = 0;
    for (const double value : tensor.values()) {
      const double magnitude = std::fabs(value);
      if (!(magnitude <= most)) most = std::isnan(magnitude) ? std::numeric_limits<double>::infinity() : magnitude;
    }
    largest = std::max(largest, most);
    if (most > kWarning && std::isinf(warning)) warning = step, warned_at = name;
    if (std::isinf(most) && std::isinf(nonfinite)) nonfinite = step, overflowed_at = name;
  }
};

Findings measure_overflow(const TrialSpec& spec) {
  const Harness self = overflow_harness();
  const double growth = std::stod(axis_value(self, spec, "growth"));
  const int64_t most = std::stoll(axis_value(self, spec, "steps"));
  Trial trial(spec);
  const ModelValues start = values_of(trial);
  const std::vector<Param*> params = trial.params();
  std::set<std::string> names;
  for (const Param* param : params) names.insert("gradient/" + param->name);
  FirstTimes activations, gradients;
  double step = 0, loss_step = std::numeric_limits<double>::infinity(), factor = 1;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    (name.starts_with("activation/") ? activations : gradients).look(name.substr(name.find('/') + 1), tensor, step);
  });
  std::vector<double> steps, largest, headroom;
  for (int64_t i = 0; i < most && std::isinf(activations.nonfinite); ++i) {
    step = static_cast<double>(i), factor = std::pow(growth, step);
    // From the start values, so that rounding to the dtype of the parameters does not accumulate.
    for (size_t p = 0; p < params.size(); ++p) {
      const bool grows = params[p]->value.shape().rank() >= 2;
      std::vector<double> values = start.params[p];
      if (grows)
        for (double& value : values) value *= factor;
      if (!params[p]->master.empty()) params[p]->master.set_values(values);
      params[p]->value.set_values(values);
    }
    activations.largest = gradients.largest = 0;
    trial.load_batch(i);
    trial.forward();
    if (!std::isfinite(trial.loss()) && std::isinf(loss_step)) loss_step = step;
    trial.backward();
    trial.update();  // for the loss scale; the parameters are set again
    steps.push_back(step), largest.push_back(activations.largest);
  }
  FindingsWriter out(overflow_table());
  for (const auto& [at, found] : {std::pair{"activations", &activations}, {"gradients", &gradients}}) {
    out.number("overflow.first_warning", at, found->warning);
    out.number("overflow.first_nonfinite", at, found->nonfinite);
    out.number("overflow.lead", at,
               std::isinf(found->nonfinite) ? found->nonfinite : found->nonfinite - found->warning);
    if (!found->warned_at.empty()) out.number("overflow.warned_at", at + ("/" + found->warned_at), found->warning);
    if (!found->overflowed_at.empty())
      out.number("overflow.overflowed_at", at + ("/" + found->overflowed_at), found->nonfinite);
  }
  out.number("overflow.nonfinite_loss", "", loss_step);
  out.number("overflow.steps", "", static_cast<double>(steps.size()));
  out.number("overflow.growth_in_all", "", factor);
  // At most kMostPoints of the curve, with the last one.
  std::vector<double> x, y, bits;
  const size_t every = std::max<size_t>(1, steps.size() / kMostPoints);
  for (size_t i = (steps.size() - 1) % every; i < steps.size(); i += every) {
    x.push_back(steps[i]), y.push_back(largest[i]);
    bits.push_back(std::log2(kFp16.max_finite() / largest[i]));
  }
  out.curve("overflow.largest", "", x, y);
  out.curve("overflow.headroom", "", x, bits);
  return out.take();
}

}  // namespace

Harness overflow_harness() {
  return {.name = "overflow",
          .about = "weights that grow at each step: the first infinity, and how early a warning at 32768 comes",
          .axes = {{"growth", {"1.001", "1.01"}, AxisNumbers{1, 2, false}, "factor of the weights at each step"},
                   {"steps", {"5000", "500"}, AxisNumbers{1, 1e6, true}, "training steps, at most"}},
          .metrics = overflow_table(),
          .measure = measure_overflow};
}

}  // namespace halfmark::accuracy
