// The training harness: a short training and its fp32 baseline (same data, same start), then evaluation on held-out
// samples in fp32 and in pure half. Divergence is a measurement. The controls are trainings whose outcome is known in advance.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/lint_numbers.h"
#include "accuracy/lint_rules.h"
#include "accuracy/lint_training.h"
#include "accuracy/oracle.h"
#include "accuracy/reference.h"
#include "accuracy/training_axes.h"
#include "accuracy/update_count.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& training_table() {
  static const std::vector<MetricRow> rows = with_reference_rows(with_lint_rows({
      {"training.loss", "1", Better::lower, Kind::information,
       "over steps: loss of the batch before the update, unscaled"},
      {"training.accuracy", "1", Better::higher, Kind::information,
       "over steps: share of the training batch classified correctly before the update"},
      {"training.loss_fp32", "1", Better::lower, Kind::information, "over steps: training.loss of the fp32 baseline"},
      {"training.scale", "1", Better::neither, Kind::information, "over steps: loss scale in use"},
      {"training.final_loss", "1", Better::lower, Kind::bounded,
       "mean of training.loss over the last tenth of the steps"},
      {"training.final_accuracy", "1", Better::higher, Kind::bounded,
       "mean of training.accuracy over the last tenth of the steps"},
      {"training.loss_difference", "1", Better::lower, Kind::bounded,
       "training.final_loss minus that of the fp32 baseline"},
      {"training.skipped_steps", "1", Better::lower, Kind::bounded,
       "steps that the scaler skipped for a non-finite gradient"},
      {"training.noop_updates", "1", Better::lower, Kind::bounded,
       "share of parameter elements, finite before the update, over all steps not skipped, that the update left "
       "unchanged (of the master copy if there is one); absent if there are none"},
      {"evaluation.samples", "1", Better::neither, Kind::exact,
       "held-out samples, the same for all policies: from the generator of the training data, a stream of their own; "
       "with "
       "--data: of the files' test part"},
      {"evaluation.loss", "1", Better::lower, Kind::bounded,
       "mean loss of the held-out samples, parameters and statistics cast to fp32 or half"},
      {"evaluation.accuracy", "1", Better::higher, Kind::bounded,
       "share of the held-out samples classified correctly, same evaluation; standard error: sqrt(q (1 - q) / "
       "samples), "
       "q = (right + 1) / (samples + 2), of this one seed"},
      {"evaluation.gap", "1", Better::lower, Kind::bounded, "evaluation.loss at half - evaluation.loss at fp32"},
      {"evaluation.folded_loss", "1", Better::lower, Kind::bounded,
       "evaluation.loss after each batch norm is folded into the convolution before it in fp64, then cast"},
      {"evaluation.folded_accuracy", "1", Better::higher, Kind::bounded, "evaluation.accuracy of that model"},
      {"evaluation.folding_difference", "1", Better::neither, Kind::bounded,
       "evaluation.folded_loss - evaluation.loss, both cast alike"},
      {"data.batch", "s", Better::neither, Kind::information,
       "with --data: median seconds to read, decode and normalise one batch, by one thread while the training "
       "computes"},
      {"data.waiting", "s", Better::neither, Kind::information,
       "with --data: seconds that the training waited for its batches, in all"},
  }));
  return rows;
}

// The standard error of an accuracy is at most 1 / (2 sqrt(1024)) = 1.6 %.
constexpr int64_t kHeldOut = 1024;

// Trainings with a known outcome. Sources: numbers smaller than 2^-25 are zero in
// fp16 (IEEE 754 round to nearest even); a loss scale of 2^16 lifts 2^-24 to 2^-8;
// a bf16 parameter p ignores an update below 2^-9 |p|.
struct Control {
  std::string_view name, policy;
  void (*configure)(Settings&);
  Expect expect;
};
void underflow(Settings& s) { s.loss_factor = 0x1p-22; }
void small_rate(Settings& s) { s.rate = 1e-4, s.momentum = 0; }
void scale_too_high(Settings& s) { s.scaler = ScalerSpec{.kind = ScalerSpec::Kind::dynamic, .initial = 0x1p40}; }
constexpr Control kControls[] = {
    {"underflow", "fp16", underflow, {"training.noop_updates", "", ">=", 0.95}},
    {"underflow", "amp-fp16", underflow, {"training.loss_difference", "", "<", 0.2}},
    {"small_rate", "bf16", small_rate, {"training.noop_updates", "", ">=", 0.5}},
    {"small_rate", "amp-bf16", small_rate, {"training.noop_updates", "", "<", 0.5}},
    {"scale_too_high", "amp-fp16", scale_too_high, {"training.skipped_steps", "", ">", 0}},
};

TrialSpec configured(const TrialSpec& given) {
  const Harness self = training_harness();
  TrialSpec spec = given;
  configure_optimizer(self, spec);
  spec.seed += std::stoull(axis_value(self, spec, "replicate"));
  const std::string control = axis_value(self, spec, "control");
  for (const Control& row : kControls)
    if (row.name == control) return row.configure(spec.settings), spec;
  return spec;
}

std::optional<Expect> expects(const TrialSpec& spec) {
  const std::string control = axis_value(training_harness(), spec, "control");
  for (const Control& row : kControls)
    if (row.name == control && row.policy == spec.policy->name) return row.expect;
  return {};
}

struct TrainingResult {
  std::vector<double> steps, loss, accuracy, scale;
  double skipped = 0;
  UpdateCount updates;
  Observation scaling;                  // for the linter
  std::optional<ReadingTimes> reading;  // of files
  Evaluation fp32, half;
  std::optional<Evaluation> folded_fp32, folded_half;  // of a model with batch norm after convolutions

  double last_tenth(const std::vector<double>& curve) const {
    const size_t count = std::max<size_t>(1, curve.size() / 10);
    double sum = 0;
    for (size_t i = curve.size() - count; i < curve.size(); ++i) sum += curve[i];
    return sum / static_cast<double>(count);
  }
};

// The values that the optimizer updates: the master copy if there is one.
std::vector<double> stored(const Param& param) {
  return param.master.empty() ? param.value.values() : param.master.values();
}

enum class Evaluated : uint8_t { no, yes };

TrainingResult train(const TrialSpec& spec, int64_t steps, Evaluated evaluated) {
  Trial trial(spec);
  TrainingResult training;
  std::vector<std::vector<double>> before;
  for (const Param* param : trial.params()) before.push_back(stored(*param));
  std::vector<StepFacts> steps_seen;
  trial.read_ahead();
  for (int64_t step = 0; step < steps; ++step) {
    const StepResult result = trial.train_step(step);
    training.steps.push_back(static_cast<double>(step));
    training.loss.push_back(result.loss);
    training.accuracy.push_back(result.accuracy);
    training.scale.push_back(result.scale);
    training.skipped += result.skipped;
    steps_seen.push_back({.number = step, .skipped = result.skipped, .scale = result.scale});
    if (result.skipped) continue;
    const std::vector<Param*> params = trial.params();
    bool is_good = true;
    for (size_t p = 0; p < params.size(); ++p) {
      std::vector<double> after = stored(*params[p]);
      is_good = is_good && is_finite(after);
      training.updates.add(before[p], after);
      before[p] = std::move(after);
    }
    if (!is_good && std::isfinite(result.loss)) steps_seen.back().nonfinite_gradients = nonfinite_gradients_of(trial);
  }
  training.scaling = observe_scaling(trial, std::move(steps_seen));
  if (const ReadingTimes* times = trial.reading_times()) training.reading = *times;
  if (evaluated == Evaluated::no) return training;
  const Policy& half = policy_named(spec.policy->low == DType::bf16 ? "bf16" : "fp16");
  training.fp32 = trial.evaluate(kHeldOut, &policy_named("fp32"));
  training.half = trial.evaluate(kHeldOut, &half);
  if (trial.foldable() > 0) {
    training.folded_fp32 = trial.evaluate(kHeldOut, &policy_named("fp32"), EvaluatedForm::folded);
    training.folded_half = trial.evaluate(kHeldOut, &half, EvaluatedForm::folded);
  }
  return training;
}

// The fp32 baseline, cached for all policies of a subject. Only its losses are used, so it is not evaluated.
std::shared_ptr<const TrainingResult> fp32_baseline(const TrialSpec& spec, int64_t steps) {
  static std::list<std::pair<std::string, std::shared_ptr<const TrainingResult>>> kept;  // latest first
  TrialSpec baseline_spec = spec.under(policy_named("fp32"));
  baseline_spec.settings.scaler.reset();
  baseline_spec.settings.optimizer.storage = Storage::nearest;  // fp32 loses nothing that another storage would keep
  const std::string key = fmt::format("{} {} {} {} {} {}", baseline_spec.subject->id(), baseline_spec.device->name(),
                                      baseline_spec.seed, text_of_data(spec), steps, text_of(baseline_spec.settings));
  for (const auto& [name, training] : kept)
    if (name == key) return training;
  const LogPause pause;
  auto training = std::make_shared<const TrainingResult>(train(baseline_spec, steps, Evaluated::no));
  kept.emplace_front(key, training);
  if (kept.size() > 8) kept.pop_back();
  return training;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Findings measure_training(const TrialSpec& given) {
  const TrialSpec spec = configured(given);
  const int64_t steps = std::stoll(axis_value(training_harness(), given, "steps"));
  const auto baseline = fp32_baseline(spec, steps);
  // Policy fp32 is trained a second time, so that its kernels are recorded; a difference of 0 then proves determinism.
  const auto training = std::make_shared<const TrainingResult>(train(spec, steps, Evaluated::yes));

  FindingsWriter out(training_table());
  out.curve("training.loss", "", training->steps, training->loss);
  out.curve("training.accuracy", "", training->steps, training->accuracy);
  out.curve("training.loss_fp32", "", baseline->steps, baseline->loss);
  out.curve("training.scale", "", training->steps, training->scale);
  const double final_loss = training->last_tenth(training->loss);
  out.number("training.final_loss", "", final_loss);
  out.number("training.final_accuracy", "", training->last_tenth(training->accuracy));
  out.number("training.loss_difference", "", final_loss - baseline->last_tenth(baseline->loss));
  out.number("training.skipped_steps", "", training->skipped);
  // If every step was skipped, nothing was updated: reported like updates that change nothing.
  if (const UpdateCount& updates = training->updates; updates.all > 0)
    out.number("training.noop_updates", "", updates.unchanged / updates.all);
  out.number("evaluation.samples", "", static_cast<double>(training->fp32.samples));
  for (const auto& [at, evaluation] : {std::pair{"fp32", &training->fp32}, {"half", &training->half}}) {
    out.number("evaluation.loss", at, evaluation->loss);
    out.number("evaluation.accuracy", at, evaluation->accuracy).standard_error = evaluation->accuracy_error();
  }
  out.number("evaluation.gap", "", training->half.loss - training->fp32.loss);
  for (const auto& [at, folded, plain] : {std::tuple{"fp32", &training->folded_fp32, &training->fp32},
                                          {"half", &training->folded_half, &training->half}}) {
    if (!*folded) continue;
    out.number("evaluation.folded_loss", at, (*folded)->loss);
    out.number("evaluation.folded_accuracy", at, (*folded)->accuracy).standard_error = (*folded)->accuracy_error();
    out.number("evaluation.folding_difference", at, (*folded)->loss - plain->loss);
  }
  if (training->reading) {
    out.number("data.batch", "", median_of(training->reading->batches));
    out.number("data.waiting", "", training->reading->waited);
  }
  write_lint(training->scaling, out);
  training_numbers(spec)->add_to(out);
  return out.take();
}

std::optional<std::string> refuses_training(const TrialSpec& spec) {
  if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
  if (spec.subject->data == DataKind::logits) return spec.subject->id() + " has random labels, which cannot be learned";
  const std::string control = axis_value(training_harness(), spec, "control");
  if (control != "none" && !expects(spec))
    return "control " + control + " has no expectation for policy " + std::string(spec.policy->name);
  return refuses_optimizer(training_harness(), spec, control);
}

}  // namespace

Harness training_harness() {
  std::vector<Axis> axes = {
      {"control",
       {"none", "underflow", "small_rate", "scale_too_high"},
       {},
       "a training whose outcome is known for some policies: a number that must be bad, or must not"},
      {"replicate", {"0", "1", "2", "3", "4"}, AxisNumbers{0, 1e6, true}, "added to the random seed"},
      {"steps", {"40", "10", "100", "400"}, AxisNumbers{1, 1e6, true}, "training steps"}};
  std::ranges::copy(optimizer_axes(), std::back_inserter(axes));
  return {.name = "training",
          .about = "loss against the fp32 baseline, loss scale, lost updates, held-out accuracy in fp32 and pure half",
          .axes = std::move(axes),
          .metrics = training_table(),
          .refuses = refuses_training,
          .measure = measure_training,
          .expects = expects};
}

}  // namespace halfmark::accuracy
