// The harness `evaluation`: what changes when a trained model is evaluated in another precision than it was trained in, as
// with the flag fp16_full_eval. One part for each question.
#include "accuracy/experiments/evaluation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "accuracy/experiments/sums.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& evaluation_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"evaluation.logit_error_rms", "1", Better::lower, information,
       "rms of (logit - fp64 logit) / rms of the fp64 logits, of the last checkpoint's held-out samples; at: the form "
       "of "
       "evaluation; curve: over the checkpoints"},
      {"evaluation.logit_error_max", "1", Better::lower, information, "the largest |logit - fp64 logit|, likewise"},
      {"evaluation.flips", "1", Better::lower, information,
       "predictions per 10,000 whose class is not that of fp64, of the last checkpoint; standard error: of a share of "
       "evaluation.predictions"},
      {"evaluation.predictions", "1", Better::neither, information,
       "predictions of one evaluation: the sample of flips"},
      {"evaluation.nonfinite", "1", Better::lower, information, "share of the logits that are infinite or NaN"},
      {"evaluation.metric_gap", "1", Better::neither, information,
       "mean over the checkpoints (samples) of the metric - the metric in fp64; standard error: over the checkpoints. "
       "The "
       "metric is the share of right answers, or the mean intersection over union of streets"},
      {"evaluation.loss_gap", "1", Better::neither, information, "the same of the held-out loss"},
      {"evaluation.gap_over_seeds", "1", Better::neither, information,
       "|evaluation.metric_gap| / evaluation.seed_deviation at metric: below 1, other seeds matter more"},
      {"evaluation.seed_deviation", "1", Better::neither, information,
       "standard deviation of one seed's final metric or loss in fp32, from the seeds in samples"},
      {"evaluation.tau", "1", Better::higher, information,
       "Kendall's tau-b of the checkpoints ranked by loss or metric in this form and in fp32; NaN: fewer than two "
       "different values"},
      {"evaluation.best_unchanged", "1", Better::higher, information,
       "1: the checkpoint with the least loss (largest metric, the first of equal ones) is that of fp32"},
      {"evaluation.selection_regret", "1", Better::lower, information,
       "loss in fp32 of the checkpoint with the least loss in this form - the least loss in fp32"},
      {"evaluation.checkpoints", "1", Better::neither, information, "checkpoints that were ranked"},
      {"evaluation.half_share", "1", Better::neither, information,
       "share of the parameters, running statistics and activations of an evaluation that are stored in 16 bits"},
      {"evaluation.left_out", "1", Better::neither, information,
       "1: this form was not evaluated, because the device has no kernel for it; `run SUBJECT error` under its policy "
       "says why"},
      {"evaluation.recomputed_equal", "1", Better::higher, information,
       "1: the metric computed again from the same logits is bit-identical, for every checkpoint and form"},

      {"evaluation.training_unchanged", "1", Better::higher, information,
       "share of the parameters and running statistics after the training that are bit-equal to those of a training "
       "without evaluation; at: how the middle of the training was evaluated"},
      {"evaluation.training_distance", "1", Better::lower, information,
       "||parameters - parameters without evaluation|| / ||parameters without evaluation||, likewise"},
      {"evaluation.training_loss_change", "1", Better::neither, information,
       "held-out loss - held-out loss of the training without evaluation, likewise"},
      {"evaluation.statistics_change", "1", Better::lower, information,
       "largest change of a running statistic after the first step, with or without train() after eval()"},
      {"evaluation.accuracy_after", "1", Better::higher, information,
       "held-out accuracy in fp32 after that training; standard error: of the samples"},
      {"evaluation.optimism", "1", Better::neither, information,
       "accuracy of the training batches in the last tenth of the steps, before their updates, - held-out accuracy; "
       "standard error: of the held-out samples"},
      {"evaluation.step_cost", "1", Better::lower, information,
       "bytes that the operations of an evaluation of the training batch move / those of a training step"},

      {"evaluation.peak_bytes", "B", Better::lower, information,
       "over the number of evaluation batches: most bytes of tensors at one instant, logits kept or not"},
      {"evaluation.bytes_per_batch", "B", Better::lower, information,
       "(evaluation.peak_bytes of the most batches - of one batch) / (batches - 1)"},
      {"evaluation.output_bytes", "B", Better::neither, information, "of the logits of one batch"},
      {"evaluation.peak_ratio", "1", Better::lower, information, "peak bytes of one batch / those of fp32"},
      {"evaluation.weight_bytes", "B", Better::lower, information, "of parameters and copies of them at that peak"},

      {"evaluation.rate_tau", "1", Better::higher, information,
       "Kendall's tau-b of 8 learning rates ranked by held-out loss; at half: full half against fp32, mean over the "
       "seeds; at seeds: two fp32 seeds, mean over the pairs; standard error: half from the seeds, seeds by leaving "
       "out "
       "one seed at a time"},
      {"evaluation.rate_loss", "1", Better::lower, information,
       "over the rates: held-out loss after training, mean over the seeds; at: the form of evaluation"},
      {"evaluation.best_rate_unchanged", "1", Better::higher, information,
       "share of the seeds whose best rate under full half is that under fp32"},

      {"evaluation.slot_loss_gap", "1", Better::neither, information,
       "held-out loss under full half - in fp64, mean over the seeds (samples); at: the layer in the slot"},
      {"evaluation.slot_logit_error", "1", Better::lower, information,
       "evaluation.logit_error_rms of full half, mean over the seeds (samples), likewise"},
      {"evaluation.slot_flips", "1", Better::lower, information,
       "predictions per 10,000 unlike fp64's, over all seeds; standard error: of a share of all their predictions"},
      {"evaluation.slot_seed_deviation", "1", Better::neither, information,
       "standard deviation of one seed's held-out loss in fp32"},

      {"evaluation.conclusion_gap", "1", Better::neither, information,
       "held-out loss of the subject at its own rate times this factor - at its own rate, trained and evaluated in "
       "fp32, "
       "mean over the seeds (samples): its sign is which of the two models is better"},
      {"evaluation.conclusion_wrong", "1", Better::lower, information,
       "share of the seeds (samples) that say the other, or nothing; at fp32/FACTOR; evaluated/FACTOR: trained in "
       "fp32, "
       "evaluated in full fp16; trained/FACTOR: trained under the policy, evaluated in fp32"},
      {"evaluation.conclusion_chance", "1", Better::higher, information,
       "probability of so many seeds that are wrong so and right in fp32, of those that differ, if both are wrong "
       "equally often (McNemar, one-sided, exact); without a factor: the least, times their number (Bonferroni)"},

      {"evaluation.weights_logit_error", "1", Better::lower, information,
       "evaluation.logit_error_rms, mean over the seeds (samples); at full_fp16, full_bf16; int8: weights in int8 with "
       "a "
       "scale for each output channel, all else fp32; int8_tensor: with one scale"},
      {"evaluation.weights_loss_gap", "1", Better::neither, information,
       "held-out loss - in fp64, mean over the seeds (samples), likewise"},
      {"evaluation.weights_flips", "1", Better::lower, information,
       "predictions per 10,000 unlike fp64's, over all seeds; standard error: of a share of all their predictions"},
      {"evaluation.weights_bytes", "B", Better::lower, information, "of all parameters as stored, with their scales"},
      {"evaluation.weights_floats", "1", Better::neither, information, "share of the parameters stored as floats"},
  };
  return rows;
}

struct PartRow {
  std::string_view name, axes;  // the axes that it reads, separated by single spaces
  void (*measure)(const TrialSpec&, const EvaluationAxes&, FindingsWriter&);
};
constexpr PartRow kParts[] = {
    {"checkpoints", "steps checkpoints seeds samples", evaluate_checkpoints},
    {"mid_training", "steps samples", evaluate_in_mid_training},
    {"memory", "batches", evaluate_memory},
    {"rates", "steps seeds samples", evaluate_rates},
    {"slots", "steps seeds samples", evaluate_slots},
    {"conclusions", "steps seeds samples", evaluate_conclusions},
    {"int8", "steps seeds samples", evaluate_int8},
};

const PartRow& part_of(const TrialSpec& spec) {
  const std::string name = axis_value(evaluation_harness(), spec, "part");
  for (const PartRow& row : kParts)
    if (row.name == name) return row;
  throw Error("evaluation: no part " + name);
}

bool reads(const PartRow& part, std::string_view axis) {
  return axis == "part" ||
         (" " + std::string(part.axes) + " ").find(" " + std::string(axis) + " ") != std::string::npos;
}

// Of `auto`: as many as have 4096 predictions, at least 32 and at most 1024. A sample of streets has one for each pixel, and an
// evaluation of it costs as much more.
int64_t samples_of(const TrialSpec& spec) {
  const std::string text = axis_value(evaluation_harness(), spec, "samples");
  if (text != "auto") return std::stoll(text);
  const Shape output = output_shape(*spec.subject->network, spec.subject->input);
  const int64_t width = output.rank() == 4 ? output[1] : output[output.rank() - 1];
  const int64_t predictions = std::max<int64_t>(1, output.elements() / width / output[0]);
  return std::clamp<int64_t>(4096 / predictions, 32, 1024);
}

Findings measure_evaluation(const TrialSpec& spec) {
  const Harness self = evaluation_harness();
  const auto number = [&](std::string_view axis) { return std::stoll(axis_value(self, spec, axis)); };
  FindingsWriter out(evaluation_table());
  part_of(spec).measure(spec,
                        {.steps = number("steps"),
                         .checkpoints = number("checkpoints"),
                         .seeds = number("seeds"),
                         .samples = samples_of(spec),
                         .batches = number("batches")},
                        out);
  return out.take();
}

std::optional<std::string> refuses_evaluation(const TrialSpec& spec) {
  if (auto refusal = refusal_of_fp64(spec)) return refusal;
  const std::string id = spec.subject->id();
  const PartRow& part = part_of(spec);
  for (const auto& [axis, value] : spec.axes)
    if (!reads(part, axis)) return "part " + std::string(part.name) + " has no axis " + axis;
  if (!spec.subject->network) return "only a function of a program knows the network of " + id;
  if (part.name == "memory") return {};
  if (!spec.subject->has_labels()) return id + " has no labels to learn";
  if (spec.subject->data == DataKind::logits) return id + " has random labels, which cannot be learned";
  if (part.name == "slots" && slot_networks(*spec.subject).empty())
    return "part slots has a network for labelled images, " + id + " has other data";
  const int64_t steps = std::stoll(axis_value(evaluation_harness(), spec, "steps"));
  if (part.name == "checkpoints" && steps < std::stoll(axis_value(evaluation_harness(), spec, "checkpoints")))
    return "more checkpoints than steps";
  return {};
}

}  // namespace

std::span<const FormOfModel> forms_of_models() {
  static constexpr FormOfModel kForms[] = {
      {"fp32", "fp32"},
      {"tf32", "tf32"},
      {"autocast_fp16", "amp-fp16"},
      {"full_fp16", "fp16"},
      {"full_fp16_folded", "fp16", EvaluatedForm::folded},
      {"full_bf16", "bf16"},
  };
  return kForms;
}

std::vector<ModelValues> train_checkpoints(const TrialSpec& spec, int64_t steps, int64_t checkpoints) {
  Trial trial(spec);
  trial.read_ahead();
  std::vector<ModelValues> kept;
  for (int64_t step = 0; step < steps; ++step) {
    trial.train_step(step);
    // Checkpoint i ends at step floor(steps (i + 1) / checkpoints).
    if (step + 1 == steps * (static_cast<int64_t>(kept.size()) + 1) / checkpoints) kept.push_back(values_of(trial));
  }
  return kept;
}

namespace {
TrialSpec without_settings_of_training(TrialSpec spec) {
  spec.settings.batchnorm_state.reset(), spec.settings.scaler.reset();
  return spec;
}
}  // namespace

bool is_supported(const TrialSpec& spec, const FormOfModel& form) {
  if (form.name == "fp32") return true;
  const LogPause pause;
  try {
    Trial trial(without_settings_of_training(spec.under(policy_named(form.policy))));
    trial.load_batch(0);
    (void)trial.infer();
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

Evaluator::Evaluator(const TrialSpec& spec, int64_t samples)
    : fp32_(without_settings_of_training(spec.under(policy_named("fp32")))),
      fp64_(without_settings_of_training(spec).oracle(Inputs::drawn)),
      samples_(samples) {}

bool Evaluator::has(const FormOfModel& form) const {
  return form.form == EvaluatedForm::trained || fp32_.foldable() > 0;
}

Evaluation Evaluator::evaluate(const ModelValues& values, const FormOfModel& form, Answers* answers) {
  put_values(fp32_, values);
  return fp32_.evaluate(samples_, &policy_named(form.policy), form.form, answers);
}

Evaluation Evaluator::exact(const ModelValues& values, Answers* answers) {
  const LogPause pause;
  put_values(fp64_, values);
  return fp64_.evaluate(samples_, nullptr, EvaluatedForm::trained, answers);
}

Harness evaluation_harness() {
  Axis parts{.name = "part", .values = {}, .about = "what is measured"};
  for (const PartRow& part : kParts) parts.values.push_back(part.name);
  return {.name = "evaluation",
          .about = "a trained model evaluated in fp32, tf32, autocast and full half: logits, flips, rankings, memory",
          .axes = {parts,
                   {"steps", {"100", "40", "200", "400"}, AxisNumbers{2, 1e6, true}, "training steps"},
                   {"checkpoints",
                    {"20"},
                    AxisNumbers{2, 1000, true},
                    "checkpoints of a training, ranked by loss and metric"},
                   {"seeds", {"5", "3", "20"}, AxisNumbers{2, 100, true}, "trainings, with different random seeds"},
                   {"samples",
                    {"auto", "64", "256", "1024"},
                    AxisNumbers{1, 1e6, true},
                    "held-out samples; auto: as many as have 4096 predictions, 32 to 1024"},
                   {"batches", {"64", "8"}, AxisNumbers{2, 1e4, true}, "that are evaluated in part memory"}},
          .metrics = evaluation_table(),
          .refuses = refuses_evaluation,
          .measure = measure_evaluation};
}

}  // namespace halfmark::accuracy
