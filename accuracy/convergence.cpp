// The convergence harness: does a policy train a model to the loss that fp32 trains it to? Several seeds, each trained
// under the policy and under fp32 from the same start on the same data. The measure is fp32's own spread over the seeds:
// a precision whose effect is smaller than that of another seed has no effect that anyone would notice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/convergence.h"
#include "accuracy/oracle.h"
#include "accuracy/training_axes.h"
#include "accuracy/update_count.h"
#include "reports/statistics/statistics.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& convergence_table() {
  static const std::vector<MetricRow> rows = {
      {"convergence.loss", "1", Better::lower, Kind::bounded,
       "mean over the seeds (samples) of the loss of 1024 held-out samples after training, evaluated in fp32"},
      {"convergence.loss_fp32", "1", Better::lower, Kind::bounded, "the same, trained under fp32"},
      {"convergence.loss_gap", "1", Better::neither, Kind::bounded,
       "mean over the seeds (samples) of loss - loss of fp32 from the same seed; interval: 90 %, Student's t"},
      {"convergence.fp32_spread", "1", Better::neither, Kind::information,
       "half of the interval that holds the loss of one more seed of fp32 with 95 %: t sd sqrt(1 + 1 / seeds)"},
      {"convergence.as_fp32", "1", Better::higher, Kind::bounded,
       "1: the interval of loss_gap lies within +-fp32_spread (two one-sided tests at 5 %); -1: it lies beyond, or a "
       "loss "
       "is not finite; 0: neither is shown"},
      {"convergence.diverged_seeds", "1", Better::lower, Kind::bounded, "seeds whose loss is not finite"},
      {"convergence.noop_updates", "1", Better::lower, Kind::bounded,
       "share of parameter elements, finite before the update, over all seeds and all steps not skipped, that the "
       "update left unchanged (of the master copy if there is one); absent if there are none"},
  };
  return rows;
}

constexpr int64_t kHeldOutSamples = 1024;
constexpr size_t kFewestSeeds = 3, kMostSeeds = 100;

// Trainings with a known outcome: a failure of a precision that the literature describes, and beside it what avoids it.
// - adam_in_fp16: v, the mean of squares, is 0.001 g^2 after the first step, which rounds to 0 in fp16 below 2^-25, for
//   gradients below 2^-7.5. What is left of sqrt(v) + epsilon is then 1e-8, and m / 1e-8 is huge (IEEE 754 round to nearest
//   even; the defaults of torch.optim.Adam). AMP keeps the optimizer's state in fp32.
// - adam_large_epsilon: with epsilon 1e-2, above sqrt(v) wherever v is 0, the same training under fp16 is that of fp32: the
//   failure is that of epsilon and v, of nothing else in fp16.
// - small_rate: a bf16 parameter p ignores an update below 2^-9 |p|. AMP updates an fp32 copy; Kahan's compensation and
//   stochastic rounding keep the lost part (Zamirai et al. 2020, arXiv:2010.06192).
struct ConvergenceControl {
  std::string_view name, policy;
  void (*configure)(Settings&);
  Expect expect;
};
constexpr Expect kAsFp32 = {"convergence.as_fp32", "", "==", 1};
constexpr Expect kUnlikeFp32 = {"convergence.as_fp32", "", "==", -1};

void use_adam(Settings& s, double rate) {
  s.optimizer = {}, s.optimizer.kind = OptimizerKind::adam;
  s.rate = rate, s.momentum = 0, s.weight_decay = 0;
}
void adam_in_fp16(Settings& s) { use_adam(s, 1e-3); }
void adam_large_epsilon(Settings& s) {
  if (s.optimizer.kind == OptimizerKind::sgd) adam_in_fp16(s);
  s.optimizer.epsilon = 1e-2, s.rate = 1e-2;
}
void train_slowly(Settings& s) { use_adam(s, 1e-4); }
void small_rate_kahan(Settings& s) { train_slowly(s), s.optimizer.storage = Storage::kahan; }
void small_rate_stochastic(Settings& s) { train_slowly(s), s.optimizer.storage = Storage::stochastic; }
constexpr ConvergenceControl kConvergenceControls[] = {
    {"adam_in_fp16", "fp16", adam_in_fp16, kUnlikeFp32},
    {"adam_in_fp16", "amp-fp16", adam_in_fp16, kAsFp32},
    {"adam_large_epsilon", "fp16", adam_large_epsilon, kAsFp32},
    {"small_rate", "bf16", train_slowly, kUnlikeFp32},
    {"small_rate", "amp-bf16", train_slowly, kAsFp32},
    {"small_rate_kahan", "bf16", small_rate_kahan, kAsFp32},
    {"small_rate_stochastic", "bf16", small_rate_stochastic, kAsFp32},
};

const ConvergenceControl* control_of(const TrialSpec& spec) {
  const std::string name = axis_value(convergence_harness(), spec, "control");
  for (const ConvergenceControl& row : kConvergenceControls)
    if (row.name == name && row.policy == spec.policy->name) return &row;
  return nullptr;
}

std::optional<Expect> expected_convergence(const TrialSpec& spec) {
  const ConvergenceControl* control = control_of(spec);
  return control ? std::optional(control->expect) : std::nullopt;
}

struct Outcome {
  double loss = 0;
  UpdateCount updates;  // of the steps that were not skipped
};

Outcome train(const TrialSpec& spec, int64_t steps) {
  Trial trial(spec);
  Outcome outcome;
  const auto stored = [](const Param& param) {
    return param.master.empty() ? param.value.values() : param.master.values();
  };
  std::vector<std::vector<double>> before;
  for (const Param* param : trial.params()) before.push_back(stored(*param));
  for (int64_t step = 0; step < steps; ++step) {
    if (trial.train_step(step).skipped) continue;
    const std::vector<Param*> params = trial.params();
    for (size_t p = 0; p < params.size(); ++p) {
      std::vector<double> after = stored(*params[p]);
      outcome.updates.add(before[p], after);
      before[p] = std::move(after);
    }
  }
  outcome.loss = trial.evaluate(kHeldOutSamples, &policy_named("fp32")).loss;
  return outcome;
}

// The losses of fp32, cached for all policies of a subject. Neither the scaler nor the storage of low-precision
// parameters concerns fp32.
double fp32_loss(const TrialSpec& spec, int64_t steps) {
  static std::list<std::pair<std::string, double>> kept;  // latest first
  TrialSpec baseline = spec.under(policy_named("fp32"));
  baseline.settings.scaler.reset();
  baseline.settings.optimizer.storage = Storage::nearest;
  const std::string key = fmt::format("{} {} {} {} {} {}", baseline.subject->id(), baseline.device->name(),
                                      baseline.seed, text_of_data(spec), steps, text_of(baseline.settings));
  for (const auto& [name, loss] : kept)
    if (name == key) return loss;
  const LogPause pause;
  const double loss = train(baseline, steps).loss;
  kept.emplace_front(key, loss);
  if (kept.size() > kMostSeeds) kept.pop_back();  // all seeds of a subject, for its next policy
  return loss;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The standard deviation of one seed, estimated from all.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

}  // namespace

FindingsOfSeeds compare_seeds(const std::vector<double>& losses, const std::vector<double>& fp32) {
  HM_CHECK(losses.size() == fp32.size(), "convergence: each seed needs a loss of both precisions");
  HM_CHECK(losses.size() >= kFewestSeeds, fmt::format("convergence: {} seeds cannot be judged", losses.size()));
  const auto count = static_cast<double>(losses.size());
  FindingsOfSeeds found;
  for (size_t i = 0; i < losses.size(); ++i) found.gaps.push_back(losses[i] - fp32[i]);
  const double q95 = upper_t_quantile(0.05, count - 1), q975 = upper_t_quantile(0.025, count - 1);
  found.gap = mean_of(found.gaps);
  const double half_width = q95 * deviation_of(found.gaps) / std::sqrt(count);
  found.interval = {found.gap - half_width, found.gap + half_width};
  found.spread = q975 * deviation_of(fp32) * std::sqrt(1 + 1 / count);
  const auto [lower, upper] = found.interval;
  if (!std::isfinite(half_width) || lower > found.spread || upper < -found.spread)
    found.as_fp32 = -1;
  else
    found.as_fp32 = lower >= -found.spread && upper <= found.spread ? 1 : 0;
  return found;
}

namespace {

Findings measure_convergence(const TrialSpec& given) {
  const Harness self = convergence_harness();
  const int64_t steps = std::stoll(axis_value(self, given, "steps"));
  const uint64_t seeds = std::stoull(axis_value(self, given, "seeds"));
  TrialSpec spec = given;
  configure_optimizer(self, spec);
  if (const ConvergenceControl* control = control_of(given)) control->configure(spec.settings);
  std::vector<double> losses, fp32;
  UpdateCount updates;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    spec.seed = given.seed + seed;
    fp32.push_back(fp32_loss(spec, steps));
    // Policy fp32 is trained a second time, so that its kernels are recorded; a gap of 0 then proves determinism.
    const Outcome outcome = train(spec, steps);
    losses.push_back(outcome.loss);
    updates.add(outcome.updates);
  }
  const FindingsOfSeeds found = compare_seeds(losses, fp32);
  FindingsWriter out(convergence_table());
  out.number("convergence.loss", "", mean_of(losses)).samples = losses;
  out.number("convergence.loss_fp32", "", mean_of(fp32)).samples = fp32;
  Measurement& gap = out.number("convergence.loss_gap", "", found.gap);
  // A report holds no interval with a NaN.
  if (found.interval.lower <= found.interval.upper) gap.interval = found.interval;
  gap.samples = found.gaps;
  out.number("convergence.fp32_spread", "", found.spread);
  out.number("convergence.as_fp32", "", found.as_fp32);
  out.number(
      "convergence.diverged_seeds", "",
      static_cast<double>(std::count_if(losses.begin(), losses.end(), [](double x) { return !std::isfinite(x); })));
  if (updates.all > 0) out.number("convergence.noop_updates", "", updates.unchanged / updates.all);
  return out.take();
}

std::optional<std::string> refuses_convergence(const TrialSpec& spec) {
  if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
  if (spec.subject->data == DataKind::logits) return spec.subject->id() + " has random labels, which cannot be learned";
  const std::string control = axis_value(convergence_harness(), spec, "control");
  if (control != "none" && !control_of(spec))
    return "control " + control + " has no expectation for policy " + std::string(spec.policy->name);
  return refuses_optimizer(convergence_harness(), spec, control);
}

}  // namespace

Harness convergence_harness() {
  std::vector<Axis> axes = {
      {"control",
       {"none", "adam_in_fp16", "adam_large_epsilon", "small_rate", "small_rate_kahan", "small_rate_stochastic"},
       {},
       "a training whose outcome is known for some policies: a loss that must differ from fp32's, or must not"},
      {"seeds", {"5", "3"}, AxisNumbers{kFewestSeeds, kMostSeeds, true}, "trainings, with different random seeds"},
      {"steps", {"100", "10", "40", "200", "400"}, AxisNumbers{1, 1e6, true}, "training steps"}};
  std::ranges::copy(optimizer_axes(), std::back_inserter(axes));
  return {.name = "convergence",
          .about = "held-out loss after training with several seeds, against fp32's own spread over the same seeds",
          .axes = std::move(axes),
          .metrics = convergence_table(),
          .refuses = refuses_convergence,
          .measure = measure_convergence,
          .expects = expected_convergence};
}

}  // namespace halfmark::accuracy
