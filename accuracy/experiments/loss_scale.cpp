// The loss_scale experiment: which static loss scales train a model to the loss of fp32, beside the policy's dynamic scale.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

namespace {

constexpr int kScales = 25;  // 2^0 .. 2^24

const std::vector<MetricRow>& loss_scale_table() {
  static const std::vector<MetricRow> rows = {
      {"loss_scale.loss", "1", Better::lower, Kind::bounded,
       "over log2 of a static loss scale: mean of the training loss over the last tenth of the steps and over the "
       "seeds; "
       "infinite if it is not finite in one of them"},
      {"loss_scale.loss_standard_error", "1", Better::neither, Kind::information,
       "over log2 of the scale: standard error of that mean over the seeds; 0 where it is infinite"},
      {"loss_scale.fp32_loss", "1", Better::neither, Kind::bounded,
       "the same under fp32, with the standard error over the seeds"},
      {"loss_scale.margin", "1", Better::neither, Kind::bounded,
       "largest difference to fp32 that counts as equal: 2 % of its loss, or twice its standard deviation over the "
       "seeds "
       "if that is more"},
      {"loss_scale.plateau", "bit", Better::higher, Kind::bounded,
       "longest run of successive static scales, in powers of two, whose loss is within the margin of fp32"},
      {"loss_scale.first_good", "bit", Better::lower, Kind::bounded,
       "log2 of the least scale of that run; infinite: there is none"},
      {"loss_scale.best_loss", "1", Better::lower, Kind::bounded,
       "least loss_scale.loss, with its standard error over the seeds"},
      {"loss_scale.dynamic_loss", "1", Better::lower, Kind::bounded,
       "the same with the policy's own loss scaler, with its standard error over the seeds"},
      {"loss_scale.dynamic_skipped", "1", Better::lower, Kind::bounded,
       "share of the steps that its scaler skips, over all seeds"},
      {"loss_scale.dynamic_scale", "1", Better::neither, Kind::bounded, "its loss scale after the last step, median"},
      {"loss_scale.zeroed", "1", Better::lower, Kind::bounded,
       "over log2 of the scale: share of the gradients of all layers' results in the first step that are 0 and are not "
       "under fp32"},
      {"loss_scale.seeds", "1", Better::neither, Kind::information, "seeds of each training"},
  };
  return rows;
}

const Harness& loss_scale_self() {
  static const Harness harness = loss_scale_harness();
  return harness;
}

struct Outcome {
  double loss = 0;
  double skipped = 0, scale = 1;
};

Outcome trained(TrialSpec spec, uint64_t seed, int64_t steps) {
  spec.seed += seed;
  Trial trial(spec);
  Outcome outcome;
  const int64_t counted = std::max<int64_t>(1, steps / 10);
  for (int64_t step = 0; step < steps; ++step) {
    const StepResult result = trial.train_step(step);
    outcome.skipped += result.skipped;
    if (step >= steps - counted) outcome.loss += result.loss / static_cast<double>(counted);
  }
  if (!std::isfinite(outcome.loss)) outcome.loss = HUGE_VAL;
  outcome.scale = static_cast<double>(trial.scaler().scale());
  return outcome;
}

std::vector<double> activation_gradients(const TrialSpec& spec) {
  Trial trial(spec);
  std::vector<double> all;
  const auto is_of_parameter = [&](const std::string& name) {
    return std::ranges::any_of(trial.params(), [&](const Param* param) { return name == "gradient/" + param->name; });
  };
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    if (!name.starts_with("gradient/") || is_of_parameter(name)) return;
    const std::vector<double> values = tensor.values();
    all.insert(all.end(), values.begin(), values.end());
  });
  trial.load_batch(0), trial.forward(), trial.backward();
  return all;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// 0 for a single seed, and for losses that are not all finite.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  if (values.size() < 2 || !std::isfinite(mean)) return 0;
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean);
  return std::sqrt(variance / static_cast<double>(values.size() - 1));
}
double standard_error_of(const std::vector<double>& values) {
  return deviation_of(values) / std::sqrt(static_cast<double>(values.size()));
}

TrialSpec with_scale(TrialSpec spec, int power) {
  spec.settings.scaler = ScalerSpec{.kind = ScalerSpec::Kind::fixed, .initial = std::exp2(power)};
  return spec;
}

Findings measure_loss_scale(const TrialSpec& given) {
  const auto seeds = static_cast<uint64_t>(std::stoull(axis_value(loss_scale_self(), given, "seeds")));
  const int64_t steps = std::stoll(axis_value(loss_scale_self(), given, "steps"));
  TrialSpec spec = given;
  spec.settings.loss_factor = std::stod(axis_value(loss_scale_self(), given, "loss_factor"));
  TrialSpec fp32 = spec.under(policy_named("fp32"));
  fp32.settings.scaler.reset();

  std::vector<double> of_fp32, dynamic, scales;
  double skipped = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    {
      const LogPause pause;
      of_fp32.push_back(trained(fp32, seed, steps).loss);
    }
    const Outcome own = trained(spec, seed, steps);
    dynamic.push_back(own.loss), scales.push_back(own.scale), skipped += own.skipped;
  }
  const double reference = mean_of(of_fp32);
  const double margin = std::max(0.02 * std::fabs(reference), 2 * deviation_of(of_fp32));

  const std::vector<double> exact = [&] {
    const LogPause pause;
    return activation_gradients(fp32);
  }();
  std::vector<double> powers, losses, errors, zeroed;
  int longest = 0, run = 0, first = -1;
  for (int power = 0; power < kScales; ++power) {
    const TrialSpec scaled = with_scale(spec, power);
    std::vector<double> of_seeds;
    for (uint64_t seed = 0; seed < seeds; ++seed) of_seeds.push_back(trained(scaled, seed, steps).loss);
    powers.push_back(power), losses.push_back(mean_of(of_seeds)), errors.push_back(standard_error_of(of_seeds));
    run = losses.back() <= reference + margin ? run + 1 : 0;
    if (run > longest) longest = run, first = power - run + 1;
    const std::vector<double> seen = activation_gradients(scaled);
    double lost = 0, all = 0;
    for (size_t i = 0; i < exact.size(); ++i) lost += exact[i] != 0 && seen[i] == 0, all += exact[i] != 0;
    zeroed.push_back(all > 0 ? lost / all : 0);
  }

  FindingsWriter out(loss_scale_table());
  out.curve("loss_scale.loss", "", powers, losses);
  out.curve("loss_scale.loss_standard_error", "", powers, errors);
  out.curve("loss_scale.zeroed", "", powers, zeroed);
  out.number("loss_scale.fp32_loss", "", reference).standard_error = standard_error_of(of_fp32);
  out.number("loss_scale.margin", "", margin);
  out.number("loss_scale.plateau", "", longest);
  out.number("loss_scale.first_good", "", first < 0 ? HUGE_VAL : first);
  const auto best = static_cast<size_t>(std::ranges::min_element(losses) - losses.begin());
  out.number("loss_scale.best_loss", "", losses[best]).standard_error = errors[best];
  out.number("loss_scale.dynamic_loss", "", mean_of(dynamic)).standard_error = standard_error_of(dynamic);
  out.number("loss_scale.dynamic_skipped", "", skipped / static_cast<double>(seeds) / static_cast<double>(steps));
  std::ranges::sort(scales);
  out.number("loss_scale.dynamic_scale", "", scales[scales.size() / 2]);
  out.number("loss_scale.seeds", "", static_cast<double>(seeds));
  return out.take();
}

std::optional<std::string> refuses_loss_scale(const TrialSpec& spec) {
  if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
  if (spec.subject->data == models::DataKind::logits) return spec.subject->id() + " has random labels";
  if (spec.policy->scaler.kind != ScalerSpec::Kind::dynamic)
    return "policy " + std::string(spec.policy->name) + " has no dynamic loss scale to compare with";
  return {};
}

}  // namespace

Harness loss_scale_harness() {
  return {.name = "loss_scale",
          .about = "static loss scales 2^0 to 2^24 beside the dynamic one: which train a model to the loss of fp32",
          .axes = {{"loss_factor",
                    {"1", "1e-05"},
                    AxisNumbers{1e-12, 1e6, false},
                    "factor of the loss, and so of the gradients"},
                   {"seeds", {"5", "3"}, AxisNumbers{3, 1000, true}, "trainings, with different random seeds"},
                   {"steps", {"100", "40"}, AxisNumbers{1, 1e6, true}, "training steps"}},
          .metrics = loss_scale_table(),
          .refuses = refuses_loss_scale,
          .measure = measure_loss_scale};
}

}  // namespace halfmark::accuracy
