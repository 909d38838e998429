// The harness of the linter: a short training by a right procedure or with a planted mistake, and what the rules say about it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/lint_mistakes.h"
#include "accuracy/lint_rules.h"
#include "accuracy/lint_training.h"
#include "accuracy/training_axes.h"

namespace halfmark::accuracy {
namespace {

const Harness& lint_self() {
  static const Harness harness = lint_harness();
  return harness;
}

const MistakeRow* mistake_of(const TrialSpec& spec) { return mistake_named(axis_value(lint_self(), spec, "mistake")); }

// The settings and the procedure that the axes say.
std::pair<TrialSpec, Procedure> configured_lint(const TrialSpec& given) {
  std::pair<TrialSpec, Procedure> made{given, {}};
  auto& [spec, procedure] = made;
  configure_optimizer(lint_self(), spec);
  spec.seed += std::stoull(axis_value(lint_self(), given, "replicate"));
  procedure.clips = axis_value(lint_self(), given, "clipping") == "on";
  procedure.micro_batches = std::stoi(axis_value(lint_self(), given, "micro_batches"));
  if (const MistakeRow* mistake = mistake_of(given)) mistake->plant(procedure, spec);
  return made;
}

Findings measure_lint(const TrialSpec& given) {
  const auto [spec, procedure] = configured_lint(given);
  const int64_t steps = std::stoll(axis_value(lint_self(), given, "steps"));
  FindingsWriter out(lint_self().metrics);
  write_lint(observe_training(spec, procedure, steps), out);
  return out.take();
}

std::optional<std::string> refuses_lint(const TrialSpec& spec) {
  if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
  const MistakeRow* mistake = mistake_of(spec);
  if (!mistake) return refuses_optimizer(lint_self(), spec, "none");
  for (const char* axis : {"clipping", "micro_batches"})
    if (spec.axes.contains(axis) && axis_value(lint_self(), spec, axis) != axis_value(lint_self(), {}, axis))
      return "mistake " + std::string(mistake->name) + " sets clipping and micro-batches itself";
  const ScalerSpec& scaler = spec.settings.scaler ? *spec.settings.scaler : spec.policy->scaler;
  // Each skipped step halves the scale. From 2^20 to 2^16, where frameworks start, are four of the eight usual steps.
  constexpr double kMost = 0x1p20;
  if (scaler.kind == ScalerSpec::Kind::dynamic && scaler.initial > kMost)
    return "policy " + std::string(spec.policy->name) +
           " starts at a loss scale above 2^20, at which the few steps of this harness would be skipped; give a lower "
           "one with --scaler, as torch:65536";
  if (auto reason = mistake->refuses(spec)) return reason;
  return refuses_optimizer(lint_self(), spec, "none");
}

std::optional<Expect> expects_lint(const TrialSpec& spec) {
  const MistakeRow* mistake = mistake_of(spec);
  if (!mistake) return {};
  return Expect{"lint.finding", mistake->rule, "==", 1};
}

std::vector<Axis> lint_axes() {
  Axis planted{.name = "mistake", .values = {"none"}, .about = "a mistake that is made on purpose"};
  for (const MistakeRow& row : mistakes()) planted.values.push_back(row.name);
  std::vector<Axis> axes = {
      std::move(planted),
      {"clipping", {"off", "on"}, {}, "gradients are clipped by their norm"},
      {"micro_batches", {"1", "2", "4"}, {}, "batches whose gradients are added before a step"},
      {"replicate", {"0", "1", "2", "3", "4"}, AxisNumbers{0, 1e6, true}, "added to the random seed"},
      {"steps", {"8", "12", "24"}, AxisNumbers{4, 1e4, true}, "training steps"}};
  std::ranges::copy(optimizer_axes(), std::back_inserter(axes));
  return axes;
}

}  // namespace

Harness lint_harness() {
  return {
      .name = "lint",
      .about = "classic mistakes of mixed-precision training: whether rules on gradients, states and codes find them",
      .axes = lint_axes(),
      .metrics = with_lint_rows({}),
      .refuses = refuses_lint,
      .measure = measure_lint,
      .expects = expects_lint};
}

}  // namespace halfmark::accuracy
