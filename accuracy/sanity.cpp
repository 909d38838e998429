// The sanity harness: what a user should know before trusting other numbers. Which precision the matmul has in truth, whether
// clean data gives NaN, what an infinite input leaves in running statistics, and whether the scaler follows its rule.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/sanity.h"
#include "models/policy.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& sanity_table() {
  static const std::vector<MetricRow> rows = {
      {"sanity.product", "1", Better::neither, Kind::exact,
       "1024.5 x 1 by a matmul as a linear layer runs it: 1024 or 1025 if an operand is rounded to less than 11 "
       "fraction "
       "bits, as tf32, f16 and bf16 do"},
      {"sanity.fraction_bits", "bit", Better::neither, Kind::exact,
       "largest k for which (1 + 2^-k) x 1 by that matmul is not 1, the smaller of both operands"},
      {"sanity.nonfinite", "1", Better::lower, Kind::exact,
       "share of the numbers of a forward and backward pass on clean data that are infinite or NaN: activations, and "
       "gradients if the loss scale did not overflow"},
      {"sanity.poisoned_statistics", "1", Better::lower, Kind::exact,
       "share of running statistics that are infinite or NaN after a batch with one infinite number, also if the "
       "scaler "
       "skips its step"},
      {"sanity.skipped_steps", "1", Better::neither, Kind::exact, "1 if the scaler skipped that step"},
      {"sanity.scale_mismatches", "1", Better::lower, Kind::exact,
       "steps after which the loss scale is not the one of the framework's rule, over 12 steps with given overflows"},
      {"sanity.gradient_ratio", "1", Better::neither, Kind::bounded,
       "over the steps without overflow: the norm of the gradients as the optimizer gets them, divided by that of the "
       "same gradients with a scale that stays; the farthest from 1"},
  };
  return rows;
}

const Harness& sanity_self() {
  static const Harness harness = sanity_harness();
  return harness;
}

// One element of the product of x and 1, where the side that holds x is the first or the second operand.
double product(const TrialSpec& spec, double x, bool first) {
  Device& device = *spec.device;
  constexpr int64_t kSide = 64;  // a size that GPU libraries give to tensor cores
  const std::vector<double> values(kSide * kSide, x);
  std::vector<double> identity(kSide * kSide, 0.0);
  for (int64_t i = 0; i < kSide; ++i) identity[static_cast<size_t>(i * kSide + i)] = 1;
  const Shape shape = {kSide, kSide};
  Pass pass(device, *spec.policy, false);
  const Tensor of_x = pass.input("linear", Tensor::from(device, shape, spec.policy->param, values)),
               one = pass.input("linear", Tensor::from(device, shape, spec.policy->param, identity));
  Tensor out(device, shape, pass.output_dtype("linear", of_x.dtype()));
  run(Matmul{.a = first ? of_x : one,
             .b = first ? one : of_x,
             .out = out,
             .transpose_b = true,
             .math = pass.math(of_x.dtype())});
  return out.values()[kSide + 2];
}

void check_precision(const TrialSpec& spec, FindingsWriter& out) {
  out.number("sanity.product", "", product(spec, 1024.5, true));
  int bits[2] = {0, 0};
  for (const bool first : {true, false})
    for (int k = 1; k <= 52; ++k)
      if (product(spec, 1 + std::ldexp(1.0, -k), first) != 1) bits[first] = k;
  out.number("sanity.fraction_bits", "", std::min(bits[0], bits[1]));
}

double share_nonfinite(const std::vector<std::vector<double>>& tensors) {
  double bad = 0, all = 0;
  for (const std::vector<double>& values : tensors)
    for (const double value : values) bad += !std::isfinite(value), all += 1;
  return all > 0 ? bad / all : 0;
}

void check_nan(const TrialSpec& spec, FindingsWriter& out) {
  Trial trial(spec);
  std::vector<std::vector<double>> seen;
  trial.set_tap([&](const std::string&, const Tensor& tensor) { seen.push_back(tensor.values()); });
  trial.load_batch(0), trial.forward();
  const double forward = share_nonfinite(seen);
  out.number("sanity.nonfinite", "forward", forward);
  seen.clear();
  trial.backward();
  // A dynamic scale may start too high: that is its rule, and no fault of a kernel.
  const bool skips = !trial.update();
  out.number("sanity.nonfinite", "backward", skips ? 0 : share_nonfinite(seen));
}

void check_batchnorm(const TrialSpec& spec, FindingsWriter& out) {
  Trial trial(spec);
  trial.load_batch(0);
  Tensor x = trial.input();
  std::vector<double> values = x.values();
  values[0] = HUGE_VAL;
  x.set_values(values);
  trial.forward(), trial.backward();
  out.number("sanity.skipped_steps", "", trial.update() ? 0 : 1);
  std::vector<std::vector<double>> statistics;
  for (const State* state : trial.states()) statistics.push_back(state->value.values());
  out.number("sanity.poisoned_statistics", "", share_nonfinite(statistics));
}

// Overflows (x) and the scale after each step as a multiple of 1/4 of the first one, with an interval of 2: torch's
// GradScaler as it was run on them; the rules of apex and Keras are the same between their limits.
constexpr std::string_view kOverflows = "..x..xx.xxx.";
constexpr double kScales[] = {4, 8, 4, 4, 8, 4, 2, 2, 1, 0.5, 0.25, 0.25};
constexpr std::string_view kRules[] = {"torch", "apex", "keras"};
double norm_of_gradients(Trial& trial) {
  double sum = 0;
  for (const Param* param : trial.params())
    if (!param->grad.empty())
      for (const double value : param->grad.values()) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

double scaler_mismatches(const std::function<ScalerStep(bool overflow)>& step) {
  double mismatches = 0;
  for (size_t i = 0; i < kOverflows.size(); ++i) {
    const bool overflow = kOverflows[i] == 'x';
    const ScalerStep done = step(overflow);
    mismatches += done.updated == overflow || done.scale != kScales[i] * kScalerStart / 4;
  }
  return mismatches;
}

namespace {

void check_scaler(const TrialSpec& given, FindingsWriter& out) {
  TrialSpec spec = given, fixed = given;
  spec.settings.scaler = given.policy->scaler;
  spec.settings.scaler->initial = kScalerStart, spec.settings.scaler->interval = 2;
  spec.settings.rate = fixed.settings.rate = 0;  // every step has the same gradients
  fixed.settings.scaler = models::scaler_of("static:1024");
  const auto gradients = [](Trial& trial, bool overflow) {
    trial.load_batch(0), trial.forward(), trial.backward();
    if (!overflow) return;
    for (Param* param : trial.params()) {
      if (param->grad.empty()) continue;
      std::vector<double> values = param->grad.values();
      values.back() = HUGE_VAL;
      return param->grad.set_values(values);
    }
  };
  Trial same(fixed);
  gradients(same, false), same.update();
  const double wanted = norm_of_gradients(same);

  Trial trial(spec);
  double farthest = 1;
  const double mismatches = scaler_mismatches([&](bool overflow) {
    gradients(trial, overflow);
    const bool updated = trial.update();
    const double ratio = overflow ? 1 : norm_of_gradients(trial) / wanted;
    if (!(std::fabs(std::log(ratio)) <= std::fabs(std::log(farthest)))) farthest = ratio;
    return ScalerStep{updated, static_cast<double>(trial.scaler().scale())};
  });
  out.number("sanity.scale_mismatches", "", mismatches);
  out.number("sanity.gradient_ratio", "", farthest);
}

Findings measure_sanity(const TrialSpec& spec) {
  FindingsWriter out(sanity_table());
  const std::string check = axis_value(sanity_self(), spec, "check");
  if (check == "precision") check_precision(spec, out);
  if (check == "nan") check_nan(spec, out);
  if (check == "batchnorm") check_batchnorm(spec, out);
  if (check == "scaler") check_scaler(spec, out);
  return out.take();
}

// What the policy promises: the dtype of the operands, and the format in which they are multiplied.
int promised_bits(const TrialSpec& spec) {
  const Pass pass(*spec.device, *spec.policy, false);
  const DType operands = pass.input_dtype("linear", spec.policy->param);
  return std::min(format_of(operands).fraction_bits, pass.math(operands).multiply.fraction_bits);
}

std::optional<std::string> refuses_sanity(const TrialSpec& spec) {
  const std::string check = axis_value(sanity_self(), spec, "check"), policy(spec.policy->name);
  const LogPause pause;
  if (check == "precision" && models::quantizes_products(*spec.policy))
    return "measures products of numbers as they are stored, and " + policy + " quantises them";
  if (check == "batchnorm" && Trial(spec).states().empty()) return spec.subject->id() + " has no running statistics";
  if (check != "scaler") return {};
  if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels, so no loss to scale";
  const ScalerSpec& scaler = spec.policy->scaler;
  if (scaler.kind != ScalerSpec::Kind::dynamic) return "policy " + policy + " has no dynamic loss scale";
  const std::string rule = models::text_of(scaler), name = rule.substr(0, rule.find(':'));
  if (std::ranges::find(kRules, name) == std::end(kRules))
    return "the trajectory of scaler " + name + " is not known here";
  return {};
}

std::optional<Expect> expects_sanity(const TrialSpec& spec) {
  const std::string check = axis_value(sanity_self(), spec, "check");
  if (check == "precision") return Expect{"sanity.fraction_bits", "", "==", static_cast<double>(promised_bits(spec))};
  if (check == "nan") return Expect{"sanity.nonfinite", "forward", "==", 0};
  if (check == "batchnorm") return Expect{"sanity.poisoned_statistics", "", ">", 0};
  return Expect{"sanity.scale_mismatches", "", "==", 0};
}

}  // namespace

Harness sanity_harness() {
  return {.name = "sanity",
          .about =
              "which precision the matmul really has, NaN from clean data, batch norm after an infinite input, "
              "steps of the loss scaler",
          .axes = {{"check", {"precision", "nan", "batchnorm", "scaler"}, {}, "what is checked"}},
          .metrics = sanity_table(),
          .refuses = refuses_sanity,
          .measure = measure_sanity,
          .expects = expects_sanity};
}

}  // namespace halfmark::accuracy
