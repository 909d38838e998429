// Part checkpoints: the checkpoints of a training, evaluated in every form, and beside them the final results of other seeds.
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

// The results of one form over the checkpoints.
struct FormResults {
  std::vector<double> losses, metrics, rms, max;
  std::vector<double> loss_gaps, metric_gaps;  // to fp64
  AnswerErrors last;
};

// The share of parameters, running statistics and activations that an evaluation under this policy stores in 16 bits.
double half_share(const TrialSpec& spec, const Policy& policy) {
  TrialSpec own = spec.under(policy);
  own.settings.batchnorm_state.reset(), own.settings.scaler.reset();
  Trial trial(own);
  double half = 0, all = 0;
  const auto count = [&](const Tensor& tensor) { half += bits_of(tensor.dtype()) == 16, ++all; };
  trial.set_tap([&](const std::string&, const Tensor& tensor) { count(tensor); });
  for (const Param* param : trial.params()) count(param->value);
  for (const State* state : trial.states()) count(state->value);
  trial.load_batch(0);
  trial.infer();
  return half / all;
}

std::vector<double> negated(std::vector<double> values) {
  for (double& value : values) value = -value;
  return values;
}

}  // namespace

void evaluate_checkpoints(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out) {
  const DataKind kind = spec.subject->data;
  const std::vector<ModelValues> checkpoints = train_checkpoints(spec, axes.steps, axes.checkpoints);
  Evaluator evaluator(spec, axes.samples);
  std::map<std::string_view, FormResults> results;
  std::vector<double> steps;
  double recomputed_equal = 1;
  std::vector<FormOfModel> forms;
  for (const FormOfModel& form : forms_of_models()) {
    if (!evaluator.has(form)) continue;
    if (is_supported(spec, form))
      forms.push_back(form);
    else
      out.number("evaluation.left_out", std::string(form.name), 1);
  }
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    steps.push_back(std::floor(static_cast<double>(axes.steps * static_cast<int64_t>(i + 1)) /
                               static_cast<double>(axes.checkpoints)));
    Answers exact;
    const double exact_loss = evaluator.exact(checkpoints[i], &exact).loss, exact_metric = metric_of(kind, exact);
    for (const FormOfModel& form : forms) {
      Answers answers;
      const double loss = evaluator.evaluate(checkpoints[i], form, &answers).loss, metric = metric_of(kind, answers);
      FormResults& of_form = results[form.name];
      of_form.losses.push_back(loss), of_form.metrics.push_back(metric);
      of_form.loss_gaps.push_back(loss - exact_loss), of_form.metric_gaps.push_back(metric - exact_metric);
      of_form.last = compare_answers(kind, answers, exact);
      of_form.rms.push_back(of_form.last.rms), of_form.max.push_back(of_form.last.max);
      // Twice from the same logits: what a metric "computed again in fp32" does.
      if (std::bit_cast<uint64_t>(metric_of(kind, answers)) != std::bit_cast<uint64_t>(metric)) recomputed_equal = 0;
    }
  }

  std::vector<double> final_losses, final_metrics;
  for (int64_t seed = 0; seed < axes.seeds; ++seed) {
    TrialSpec other = spec;
    other.seed = spec.seed + static_cast<uint64_t>(seed);
    const std::vector<ModelValues> last =
        seed == 0 ? std::vector{checkpoints.back()} : train_checkpoints(other, axes.steps, 1);
    Evaluator own(other, axes.samples);
    Answers answers;
    final_losses.push_back(own.evaluate(last.back(), forms_of_models().front(), &answers).loss);
    final_metrics.push_back(metric_of(kind, answers));
  }
  const SampleMean seed_metric = sample_mean(final_metrics), seed_loss = sample_mean(final_losses);

  const FormResults& fp32 = results.at("fp32");
  for (const FormOfModel& form : forms_of_models()) {
    const auto found = results.find(form.name);
    if (found == results.end()) continue;
    const FormResults& of_form = found->second;
    const std::string at(form.name);
    out.curve("evaluation.logit_error_rms", at, steps, of_form.rms);
    out.number("evaluation.logit_error_rms", at, of_form.last.rms);
    out.curve("evaluation.logit_error_max", at, steps, of_form.max);
    out.number("evaluation.logit_error_max", at, of_form.last.max);
    const double predictions = of_form.last.predictions;
    out.number("evaluation.flips", at, 1e4 * of_form.last.flips / predictions).standard_error =
        1e4 * share_error(of_form.last.flips, predictions);
    out.number("evaluation.nonfinite", at, of_form.last.nonfinite);
    for (const auto& [metric, gaps] :
         {std::pair{"evaluation.metric_gap", &of_form.metric_gaps}, {"evaluation.loss_gap", &of_form.loss_gaps}}) {
      const SampleMean mean = sample_mean(*gaps);
      Measurement& number = out.number(metric, at, mean.mean);
      if (std::isfinite(mean.error)) number.standard_error = mean.error;
      number.samples = *gaps;
    }
    if (seed_metric.deviation > 0)
      out.number("evaluation.gap_over_seeds", at,
                 std::fabs(sample_mean(of_form.metric_gaps).mean) / seed_metric.deviation);
    out.number("evaluation.half_share", at, half_share(spec, policy_named(form.policy)));
    if (form.name == "fp32") continue;
    out.number("evaluation.tau", at + "/loss", kendall_tau(of_form.losses, fp32.losses));
    out.number("evaluation.tau", at + "/metric", kendall_tau(of_form.metrics, fp32.metrics));
    const size_t best = place_of_least(of_form.losses), best_fp32 = place_of_least(fp32.losses);
    out.number("evaluation.best_unchanged", at + "/loss", best == best_fp32);
    out.number("evaluation.best_unchanged", at + "/metric",
               place_of_least(negated(of_form.metrics)) == place_of_least(negated(fp32.metrics)));
    out.number("evaluation.selection_regret", at, fp32.losses[best] - fp32.losses[best_fp32]);
  }
  out.number("evaluation.checkpoints", "", static_cast<double>(checkpoints.size()));
  out.number("evaluation.predictions", "", fp32.last.predictions);
  out.number("evaluation.recomputed_equal", "", recomputed_equal);
  out.number("evaluation.seed_deviation", "metric", seed_metric.deviation).samples = final_metrics;
  out.number("evaluation.seed_deviation", "loss", seed_loss.deviation).samples = final_losses;
}

}  // namespace halfmark::accuracy
