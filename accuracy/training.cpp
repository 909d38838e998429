// The training harness: a short training beside its fp32 twin (same data, same start), then evaluation in fp32 and in
// full half. Divergence is a measurement. Its controls are trainings whose outcome is known beforehand.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/oracle.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& training_table() {
  static const std::vector<MetricRow> rows = {
      {"training.loss", "1", Better::lower, Kind::information,
       "over steps: loss of the batch before the update, unscaled"},
      {"training.accuracy", "1", Better::higher, Kind::information, "over steps: share of the batch classified right"},
      {"training.loss_fp32", "1", Better::lower, Kind::information, "over steps: the same of the fp32 twin"},
      {"training.scale", "1", Better::neither, Kind::information, "over steps: loss scale in use"},
      {"training.final_loss", "1", Better::lower, Kind::bounded,
       "mean of training.loss over the last tenth of the steps"},
      {"training.final_accuracy", "1", Better::higher, Kind::bounded,
       "mean of training.accuracy over the last tenth of the steps"},
      {"training.loss_difference", "1", Better::lower, Kind::bounded,
       "training.final_loss - the same of the fp32 twin"},
      {"training.skipped_steps", "1", Better::lower, Kind::bounded,
       "steps that the scaler skipped for a non-finite gradient"},
      {"training.noop_updates", "1", Better::lower, Kind::bounded,
       "share of parameter elements, over all steps not skipped, that the update left exactly as they were (master "
       "copy where there is one)"},
      {"evaluation.loss", "1", Better::lower, Kind::bounded,
       "loss over held-out batches, parameters and statistics cast to fp32 or half"},
      {"evaluation.accuracy", "1", Better::higher, Kind::bounded, "likewise, share classified right"},
      {"evaluation.gap", "1", Better::lower, Kind::bounded, "evaluation.loss at half - evaluation.loss at fp32"},
  };
  return rows;
}

constexpr int64_t kEvaluationBatches = 4;

// Trainings with a known end. Sources: tensors smaller than 2^-25 are zero in fp16 (IEEE 754 round to nearest even), a
// loss scale of 2^16 brings 2^-24 back to 2^-8 (amp_semantics.md 2.1); a bf16 parameter p ignores an update below 2^-9
// |p|.
struct Control {
  std::string_view name, policy;
  void (*configure)(Settings&);
  Expect expect;
};
void underflow(Settings& s) { s.loss_factor = 0x1p-22; }
void small_rate(Settings& s) { s.rate = 1e-4, s.momentum = 0; }
void scale_too_high(Settings& s) { s.scaler = ScalerSpec{ScalerSpec::Kind::dynamic, 0x1p40, 2, 0.5, 2000}; }
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

struct Course {
  std::vector<double> steps, loss, accuracy, scale;
  double skipped = 0, unchanged = 0, updated = 0;
  Evaluation fp32, half;

  double last_tenth(const std::vector<double>& curve) const {
    const size_t count = std::max<size_t>(1, curve.size() / 10);
    double sum = 0;
    for (size_t i = curve.size() - count; i < curve.size(); ++i) sum += curve[i];
    return sum / static_cast<double>(count);
  }
};

// What the optimizer updates.
std::vector<double> stored(const Param& param) {
  return param.master.empty() ? param.value.values() : param.master.values();
}

Course train(const TrialSpec& spec, int64_t steps) {
  Trial trial(spec);
  Course course;
  std::vector<std::vector<double>> before;
  for (const Param* param : trial.params()) before.push_back(stored(*param));
  for (int64_t step = 0; step < steps; ++step) {
    const StepResult result = trial.train_step(step);
    course.steps.push_back(static_cast<double>(step));
    course.loss.push_back(result.loss);
    course.accuracy.push_back(result.accuracy);
    course.scale.push_back(result.scale);
    course.skipped += result.skipped;
    if (result.skipped) continue;
    const std::vector<Param*> params = trial.params();
    for (size_t p = 0; p < params.size(); ++p) {
      std::vector<double> after = stored(*params[p]);
      for (size_t i = 0; i < after.size(); ++i) course.unchanged += after[i] == before[p][i];
      course.updated += static_cast<double>(after.size());
      before[p] = std::move(after);
    }
  }
  const Policy& half = policy_named(spec.policy->low == DType::bf16 ? "bf16" : "fp16");
  course.fp32 = trial.evaluate(kEvaluationBatches, &policy_named("fp32"));
  course.half = trial.evaluate(kEvaluationBatches, &half);
  return course;
}

// The twin serves every policy of a subject.
std::shared_ptr<const Course> fp32_course(const TrialSpec& spec, int64_t steps) {
  static std::list<std::pair<std::string, std::shared_ptr<const Course>>> kept;  // latest first
  TrialSpec twin = spec.under(policy_named("fp32"));
  twin.settings.scaler.reset();
  const std::string key =
      fmt::format("{} {} {} {} {}", twin.subject->id(), twin.device->name(), twin.seed, steps, text_of(twin.settings));
  for (const auto& [name, course] : kept)
    if (name == key) return course;
  const LogPause pause;
  auto course = std::make_shared<const Course>(train(twin, steps));
  kept.emplace_front(key, course);
  if (kept.size() > 8) kept.pop_back();
  return course;
}

Findings measure_training(const TrialSpec& given) {
  const TrialSpec spec = configured(given);
  const int64_t steps = std::stoll(axis_value(training_harness(), given, "steps"));
  const auto twin = fp32_course(spec, steps);
  // fp32 is trained once more, for the record of its kernels; that both runs agree is then a check of determinism.
  const auto course = std::make_shared<const Course>(train(spec, steps));

  FindingsWriter out(training_table());
  out.curve("training.loss", "", course->steps, course->loss);
  out.curve("training.accuracy", "", course->steps, course->accuracy);
  out.curve("training.loss_fp32", "", twin->steps, twin->loss);
  out.curve("training.scale", "", course->steps, course->scale);
  const double final_loss = course->last_tenth(course->loss);
  out.number("training.final_loss", "", final_loss);
  out.number("training.final_accuracy", "", course->last_tenth(course->accuracy));
  out.number("training.loss_difference", "", final_loss - twin->last_tenth(twin->loss));
  out.number("training.skipped_steps", "", course->skipped);
  // No step taken, nothing updated: as useless as updates that change nothing.
  out.number("training.noop_updates", "", course->updated > 0 ? course->unchanged / course->updated : 1);
  out.number("evaluation.loss", "fp32", course->fp32.loss);
  out.number("evaluation.loss", "half", course->half.loss);
  out.number("evaluation.accuracy", "fp32", course->fp32.accuracy);
  out.number("evaluation.accuracy", "half", course->half.accuracy);
  out.number("evaluation.gap", "", course->half.loss - course->fp32.loss);
  return out.take();
}

std::optional<std::string> refuses_training(const TrialSpec& spec) {
  if (spec.subject->classes == 0) return spec.subject->id() + " has no labels to learn";
  const std::string control = axis_value(training_harness(), spec, "control");
  if (control != "none" && !expects(spec))
    return "control " + control + " says nothing about " + std::string(spec.policy->name);
  return {};
}

}  // namespace

Harness training_harness() {
  return {
      .name = "training",
      .about = "loss and accuracy beside the fp32 twin, loss scale, lost updates, evaluation in fp32 and in full half",
      .axes = {{"control", {"none", "underflow", "small_rate", "scale_too_high"}},
               {"replicate", {"0", "1", "2", "3", "4"}},
               {"steps", {"40", "10", "100", "400"}}},
      .metrics = training_table(),
      .refuses = refuses_training,
      .measure = measure_training,
      .expects = expects};
}

}  // namespace halfmark::accuracy
