// Part int8: a trained model whose weights are quantised to int8 after the training, beside the same model in full half. What
// each costs in accuracy and in bytes, and what stays a float.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/int8_weights.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

struct WeightForm {
  std::string_view name;
  std::string_view form;  // of forms_of_models(), for the evaluation
  Int8Scales scales{};    // of the weights
  bool is_quantised = false;
};
constexpr WeightForm kWeightForms[] = {{"full_fp16", "full_fp16"},
                                       {"full_bf16", "full_bf16"},
                                       {"int8", "fp32", Int8Scales::of_channels, true},
                                       {"int8_tensor", "fp32", Int8Scales::of_tensor, true}};

struct ResultsOfForm {
  std::vector<double> errors, gaps;
  double flips = 0, predictions = 0;
};

const FormOfModel& form_of(const WeightForm& weights) {
  return *std::ranges::find(forms_of_models(), weights.form, &FormOfModel::name);
}

// The numbers of parameters that stay floats, of all; and the bytes of all, with the scales.
struct StoredParameters {
  double floats = 0, all = 0, bytes = 0;
};
StoredParameters stored_in(const WeightForm& form, const std::vector<Shape>& shapes) {
  StoredParameters found;
  for (const Shape& shape : shapes) {
    const auto count = static_cast<double>(shape.elements());
    const bool quantised = form.is_quantised && is_int8_weight(shape);
    found.all += count, found.floats += quantised ? 0 : count;
    const double of_number = quantised ? 1 : form.is_quantised ? 4 : 2;  // int8, fp32, fp16 or bf16
    found.bytes += of_number * count;
    if (quantised) found.bytes += 4.0 * static_cast<double>(int8_channels(shape, form.scales));  // scales in fp32
  }
  return found;
}

}  // namespace

void evaluate_int8(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  std::vector<Shape> shapes;
  {
    const LogPause pause;
    Trial trial(given);
    for (const Param* param : trial.params()) shapes.push_back(param->value.shape());
  }
  std::map<std::string_view, ResultsOfForm> results;
  for (int64_t seed = 0; seed < axes.seeds; ++seed) {
    TrialSpec spec = given;
    spec.seed = given.seed + static_cast<uint64_t>(seed);
    const ModelValues trained = train_checkpoints(spec, axes.steps, 1).back();
    Evaluator evaluator(spec, axes.samples);
    Answers exact;
    const double wanted = evaluator.exact(trained, &exact).loss;
    for (const WeightForm& form : kWeightForms) {
      ModelValues values = trained;
      for (size_t i = 0; i < shapes.size(); ++i)
        if (form.is_quantised && is_int8_weight(shapes[i]))
          values.params[i] = with_int8_values(values.params[i], int8_channels(shapes[i], form.scales));
      Answers answers;
      ResultsOfForm& of_form = results[form.name];
      of_form.gaps.push_back(evaluator.evaluate(values, form_of(form), &answers).loss - wanted);
      const AnswerErrors found = compare_answers(spec.subject->data, answers, exact);
      of_form.errors.push_back(found.rms);
      of_form.flips += found.flips, of_form.predictions += found.predictions;
    }
  }
  for (const WeightForm& form : kWeightForms) {
    const std::string at(form.name);
    const ResultsOfForm& of_form = results.at(form.name);
    for (const auto& [metric, values] : {std::pair{"evaluation.weights_logit_error", &of_form.errors},
                                         {"evaluation.weights_loss_gap", &of_form.gaps}}) {
      const SampleMean mean = sample_mean(*values);
      Measurement& number = out.number(metric, at, mean.mean);
      number.samples = *values;
      if (std::isfinite(mean.error)) number.standard_error = mean.error;
    }
    out.number("evaluation.weights_flips", at, 1e4 * of_form.flips / of_form.predictions).standard_error =
        1e4 * share_error(of_form.flips, of_form.predictions);
    const StoredParameters stored = stored_in(form, shapes);
    out.number("evaluation.weights_bytes", at, stored.bytes);
    out.number("evaluation.weights_floats", at, stored.floats / stored.all);
  }
}

}  // namespace halfmark::accuracy
