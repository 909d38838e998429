// The sensitivity harness: each layer of a network alone under the policy, the others in fp32, and the reverse. Does the
// order of the layers by their error depend on the seed?
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/layer_errors.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {

namespace {

constexpr uint64_t kSeeds = 3;

const std::vector<MetricRow>& sensitivity_table() {
  static const std::vector<MetricRow> rows = {
      {"sensitivity.half_alone", "1", Better::lower, Kind::bounded,
       "root of the NMSE of the output to fp64, the larger of training and evaluation, with this layer under the "
       "policy "
       "and all others in fp32; at all: no layer in fp32"},
      {"sensitivity.half_alone.loss", "1", Better::lower, Kind::bounded,
       "|loss - loss in fp64| / max(|loss in fp64|, rms output in fp64), likewise"},
      {"sensitivity.fp32_alone", "1", Better::lower, Kind::bounded,
       "as half_alone, with this layer in fp32 and all others under the policy; at all: all layers in fp32"},
      {"sensitivity.fp32_alone.loss", "1", Better::lower, Kind::bounded, "likewise"},
      {"sensitivity.rank", "1", Better::neither, Kind::information,
       "place of the layer by half_alone, the largest error first; layers of equal error share the first of their "
       "places"},
      {"sensitivity.tau", "1", Better::higher, Kind::information,
       "mean of Kendall's tau-b of half_alone over the three pairs of three seeds; standard error: by leaving out one "
       "seed at "
       "a time"},
      {"sensitivity.tau_least", "1", Better::higher, Kind::information, "the least of these"},
      {"sensitivity.control", "1", Better::higher, Kind::exact,
       "1: with every layer named as fp32, the bits of outputs and loss are those of policy fp32"},
  };
  return rows;
}

std::vector<std::string> ranked_layers(const TrialSpec& spec) {
  std::vector<std::string> layers = layers_with_policy(*spec.subject->network);
  if (!spec.subject->has_labels()) layers.pop_back();  // its loss is computed in fp64
  return layers;
}

double output_error(const PassErrors& errors) { return std::max(errors.training, errors.evaluation); }

PassErrors half_alone(PassComparison& comparison, const TrialSpec& spec, const std::string& layer) {
  return comparison.under(policy_named("fp32+precision=" + layer + "=" + std::string(spec.policy->name)));
}

std::vector<double> errors_half_alone(const TrialSpec& spec, const std::vector<std::string>& layers) {
  PassComparison comparison(spec);
  std::vector<double> errors;
  for (const std::string& layer : layers) errors.push_back(output_error(half_alone(comparison, spec, layer)));
  return errors;
}

Findings measure_sensitivity(const TrialSpec& spec) {
  const std::vector<std::string> layers = ranked_layers(spec);
  FindingsWriter out(sensitivity_table());
  PassComparison comparison(spec);
  std::vector<std::vector<double>> errors(1);
  const auto write = [&](const char* metric, const std::string& at, const PassErrors& found) {
    out.number(metric, at, output_error(found));
    if (spec.subject->has_labels()) out.number(std::string(metric) + ".loss", at, found.loss);
  };
  for (const std::string& layer : layers) {
    const PassErrors half = half_alone(comparison, spec, layer);
    write("sensitivity.half_alone", layer, half);
    write("sensitivity.fp32_alone", layer, comparison.under(with_precision(*spec.policy, layer + "=fp32")));
    errors[0].push_back(output_error(half));
  }
  const PassErrors all = comparison.under(with_precision(*spec.policy, "*=fp32"));
  write("sensitivity.half_alone", "all", comparison.under(*spec.policy));
  write("sensitivity.fp32_alone", "all", all);
  out.number("sensitivity.control", "", all.codes == comparison.under(policy_named("fp32")).codes);
  for (size_t i = 0; i < layers.size(); ++i)
    out.number("sensitivity.rank", layers[i],
               1 + static_cast<double>(std::ranges::count_if(errors[0], [&](double e) { return e > errors[0][i]; })));

  for (uint64_t seed = 1; seed < kSeeds; ++seed) {
    TrialSpec other = spec;
    other.seed = spec.seed + seed;
    errors.push_back(errors_half_alone(other, layers));
  }
  const TauOfPairs taus = kendall_tau_of_pairs(errors);
  out.number("sensitivity.tau", "", taus.mean).standard_error = taus.error;
  out.number("sensitivity.tau_least", "", taus.least);
  return out.take();
}

std::optional<std::string> refuses_sensitivity(const TrialSpec& spec) {
  const std::string id = spec.subject->id(), policy(spec.policy->name);
  if (!spec.subject->network) return id + " is a function of a program; its layers have no policies of their own";
  if (ranked_layers(spec).size() < 2) return id + " has one layer, so nothing to rank";
  if (spec.policy->base) return "policy " + policy + " is a change of a row; a layer takes a row";
  const int bits = std::min(format_of(spec.policy->low).fraction_bits, spec.policy->math.multiply.fraction_bits);
  if (bits >= kFp32.fraction_bits) return "policy " + policy + " has no layer below fp32";
  return {};
}

std::optional<Expect> expects_sensitivity(const TrialSpec&) { return Expect{"sensitivity.control", "", "==", 1}; }

}  // namespace

Harness sensitivity_harness() {
  return {.name = "sensitivity",
          .about =
              "each layer alone in half and alone in fp32: which ones cost accuracy, and whether the seed decides that",
          .axes = {},
          .metrics = sensitivity_table(),
          .refuses = refuses_sensitivity,
          .measure = measure_sensitivity,
          .expects = expects_sensitivity};
}

}  // namespace halfmark::accuracy
