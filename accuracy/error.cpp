// The error harness: errors of output, loss and gradients of one batch against two fp64 references. One uses the inputs
// as drawn (the whole cost of the precision), the other the inputs as rounded (the share of the arithmetic).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/images.h"
#include "accuracy/oracle.h"
#include "accuracy/reference.h"
#include "accuracy/stats.h"
#include "models/policy.h"

namespace halfmark::accuracy {

namespace {

// The names of one family of metrics, for each reference. They are literals because the tables hold string views.
struct Family {
  std::string_view nmse, max_relative, cosine, bias, zeroed, subnormal, infinite, nan, nonfinite, ulp_histogram;
};
constexpr Family kDrawn = {"error.nmse",      "error.max_relative", "error.cosine",   "error.bias",
                           "error.zeroed",    "error.subnormal",    "error.infinite", "error.nan",
                           "error.nonfinite", "error.ulp_histogram"};
constexpr Family kArithmetic = {
    "error.arithmetic.nmse",      "error.arithmetic.max_relative", "error.arithmetic.cosine",   "error.arithmetic.bias",
    "error.arithmetic.zeroed",    "error.arithmetic.subnormal",    "error.arithmetic.infinite", "error.arithmetic.nan",
    "error.arithmetic.nonfinite", "error.arithmetic.ulp_histogram"};

constexpr std::string_view kCancelled = "error.cancelled";

std::vector<MetricRow> metrics() {
  std::vector<MetricRow> rows;
  for (const Family& family : {kDrawn, kArithmetic}) {
    const auto add = [&](std::string_view name, Better better, std::string_view formula) {
      rows.push_back({name, "1", better, Kind::bounded, formula});
    };
    add(family.nmse, Better::lower,
        family.nmse == kDrawn.nmse
            ? "sum (value - reference)^2 / sum reference^2"
            : "the same against fp64 from inputs, parameters and output gradient as rounded to the policy's low dtype; "
              "quantising the operands of a product is part of the arithmetic");
    add(family.max_relative, Better::lower,
        "max |value - reference| / |reference| where |reference| >= least subnormal of the format");
    add(family.cosine, Better::higher, "sum value reference / (|value| |reference|)");
    add(family.bias, Better::neither, "mean (value - reference) / rms reference");
    add(family.zeroed, Better::lower, "share: value = 0 and |reference| > 2^-52 max |reference|");
    add(family.subnormal, Better::lower, "share: 0 < |value| < least normal number of the format, loss scale included");
    add(family.infinite, Better::lower, "share of values that are infinite");
    add(family.nan, Better::lower, "share of values that are NaN");
    add(family.nonfinite, Better::lower, "share of values that are infinite or NaN");
    add(family.ulp_histogram, Better::neither,
        "x: upper edge of |value - reference| in ulps of the format at the reference; y: count");
  }
  return rows;
}

const std::vector<MetricRow>& error_table() {
  static const std::vector<MetricRow> rows = [] {
    std::vector<MetricRow> all = metrics();
    all.push_back(
        {kCancelled, "1", Better::neither, Kind::information,
         "rms reference / largest rms reference of the gradients, where it is below 2^-44: the terms cancel, as for "
         "a bias before batch norm, and the reference is rounding noise. No error relative to it is written"});
    all.push_back(images_row());
    return with_reference_rows(std::move(all));
  }();
  return rows;
}

// A tensor of the trial and what it is compared with.
struct ComparedTensor {
  std::string at;
  std::vector<double> values;
  const Format* format;
  double scale = 1;
};

const std::vector<double>* find(const Reference& reference, const std::string& at, std::vector<double>& loss) {
  if (at == "output") return &reference.output;
  if (at == "gradient/input") return &reference.input_gradient;
  if (at == "loss") return loss = {reference.loss}, &loss;
  const auto found = reference.gradients.find(at.substr(std::string_view("gradient/").size()));
  return found == reference.gradients.end() ? nullptr : &found->second;
}

// Null if the reference is noise: `is_noise`.
Measurement* write(FindingsWriter& out, const Family& family, const ComparedTensor& seen, const Reference& reference,
                   bool is_noise) {
  std::vector<double> loss;
  const std::vector<double>* ref = find(reference, seen.at, loss);
  HM_CHECK(ref, "error: the fp64 reference has no " + seen.at);
  const ErrorStats stats = error_stats(seen.values, *ref, *seen.format, seen.scale);
  out.number(family.subnormal, seen.at, stats.subnormal);
  out.number(family.infinite, seen.at, stats.infinite);
  out.number(family.nan, seen.at, stats.nan);
  out.number(family.nonfinite, seen.at, stats.nonfinite);
  if (is_noise) return nullptr;
  out.number(family.max_relative, seen.at, stats.max_relative);
  out.number(family.bias, seen.at, stats.bias);
  out.number(family.zeroed, seen.at, stats.zeroed);
  if (seen.at != "loss") {  // meaningless for a single number
    out.number(family.cosine, seen.at, stats.cosine);
    out.curve(family.ulp_histogram, seen.at, stats.ulp_edges, stats.ulp_counts);
  }
  return &out.number(family.nmse, seen.at, stats.nmse);
}

// There is a bound only if the whole subject is one linear or convolution layer. With K products per sum, the error of
// an element is at most gamma |x| |w| for any order of summation, gamma = (K + 1) u / (1 - (K + 1) u) (Higham, Accuracy
// and Stability of Numerical Algorithms, 2nd ed., section 3.1). u is doubled because tensor cores may truncate.
// Over all elements, Cauchy-Schwarz gives |error| <= gamma r |x| |w| in Frobenius norms with r^2 = kernel area: no
// input element enters more sums of one output channel. The rounding of the result, the bias and its rounding, and
// underflow below the least subnormal are added.
std::optional<double> output_bound(const TrialSpec& spec, const Reference& reference, const Format& stored) {
  if (spec.subject->name != "linear" && spec.subject->name != "conv2d") return {};
  if (spec.subject->name == "linear" && models::quantizes_products(*spec.policy)) return {};  // codes, not numbers
  const Shape* weight = nullptr;
  double weight_norm = 0;
  for (const auto& [name, shape] : reference.param_shapes) {
    if (shape.rank() < 2) continue;
    if (weight || !name.ends_with(".weight")) return {};  // a weight with weight norm is not the parameter
    weight = &shape;
    weight_norm = reference.param_norms.at(name);
  }
  double square = 0;
  for (const double y : reference.output) square += y * y;
  if (!weight || square == 0) return {};

  const Math& math = spec.policy->math;
  // A library may split a sum into any number of partial sums, each rounded to `partial`.
  if (math.split_k == 1 && math.partial.fraction_bits < math.accumulate.fraction_bits) return {};
  const double area = weight->rank() == 4 ? static_cast<double>((*weight)[2] * (*weight)[3]) : 1;
  const int64_t products = weight->elements() / (*weight)[0];  // in each sum
  const double terms = static_cast<double>(products) + 1;
  const double u = 2 * math.accumulate.unit_roundoff();
  const double split = math.split_k > 1 ? math.split_k * math.partial.unit_roundoff() : 0;
  if (terms * u >= 0.5 || split >= 0.5) return {};
  // Operands that the fp64 reference did not round: tf32 reads fp32 operands and rounds them itself.
  const bool rounds_operands = math.multiply.fraction_bits < format_of(spec.policy->low).fraction_bits;
  const double operand = rounds_operands ? 2.01 * math.multiply.unit_roundoff() : 0;
  const double gamma = terms * u / (1 - terms * u) + split / (1 - split) + operand;
  const double output_norm = std::sqrt(square);
  const double sums = std::sqrt(area) * reference.input_norm * weight_norm / output_norm;
  const double out = stored.unit_roundoff() + kFp32.unit_roundoff();
  const double least =
      std::ldexp(1.0, std::max(stored.min_subnormal_exponent(), math.accumulate.min_subnormal_exponent()));
  const double underflow = (terms + 2) * least * std::sqrt(static_cast<double>(reference.output.size())) / output_norm;
  const double relative = (gamma * sums + out * (1 + gamma) * sums) * (1 + out) + out + underflow;
  return relative * relative;
}

Findings measure_error(const TrialSpec& spec) {
  std::vector<ComparedTensor> seen;
  const Format* stored = nullptr;
  FindingsWriter out(error_table());
  {
    Trial trial(spec);
    begin_scaling(trial);
    trial.load_batch(0);
    write_images(out, trial);
    {
      const KernelLog log;
      const Tensor output = trial.forward();
      expect_fused(spec, log);
      stored = &format_of(output.dtype());
      seen.push_back({"output", output.values(), stored});
    }
    seen.push_back({"loss", {trial.loss()}, &kFp32});
    trial.backward();
    const double scale = trial.scaler().scale();
    if (!row_of(spec.subject->data).has_indices)
      seen.push_back({"gradient/input", trial.input_gradient(), &format_of(spec.policy->low), scale});
    for (const Param* param : trial.params())
      seen.push_back({"gradient/" + param->name, trial.gradient(*param), &format_of(param->grad.dtype()), scale});
  }
  const auto drawn = reference_of(spec, Inputs::drawn);
  const auto rounded = reference_of(spec, Inputs::rounded);
  const std::map<std::string, double> cancelled = cancelled_gradients(*drawn);
  for (const auto& [at, size] : cancelled) out.number(kCancelled, at, size);
  for (const ComparedTensor& tensor : seen) {
    const bool is_noise = cancelled.contains(tensor.at);
    write(out, kDrawn, tensor, *drawn, is_noise);
    Measurement* nmse = write(out, kArithmetic, tensor, *rounded, is_noise);
    if (tensor.at == "output") nmse->bound = output_bound(spec, *rounded, *stored);
  }
  step_numbers(spec)->add_to(out);
  return out.take();
}

}  // namespace

Harness error_harness() {
  return {.name = "error",
          .about = "output, loss and gradients of one batch against fp64, on inputs as drawn and as rounded",
          .axes = {fused_axis(), images_axis()},
          .metrics = error_table(),
          .refuses = refuses_images,
          .measure = measure_error};
}

}  // namespace halfmark::accuracy
