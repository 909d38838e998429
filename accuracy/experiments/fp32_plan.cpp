#include "accuracy/experiments/fp32_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "accuracy/experiments/minimal_set.h"
#include "accuracy/experiments/plan_hints.h"
#include "kernels/number/error.h"
#include "models/quantized_products.h"

namespace halfmark::accuracy {

namespace {

std::string precision_text(const std::vector<std::string>& layers, const ItemSet& in_fp32) {
  std::string text;
  for (size_t i = 0; i < layers.size(); ++i)
    if (in_fp32[i]) text += (text.empty() ? "" : ",") + layers[i] + "=fp32";
  return text;
}

std::string kind_in(const std::vector<LayerSpec>& specs, const std::string& name) {
  for (const LayerSpec& spec : specs) {
    if (spec.name == name) return spec.kind;
    for (const auto& branch : spec.branches)
      if (std::string kind = kind_in(branch, name); !kind.empty()) return kind;
  }
  return "";
}

bool sums_are_narrow(const Policy& policy) { return policy.math.accumulate.fraction_bits < kFp32.fraction_bits; }

// The row with the same storage and casts that adds in fp32.
const Policy* with_wide_sums(const Policy& policy) {
  for (const Policy& row : policies())
    if (row.param == policy.param && row.low == policy.low && row.batch_norm == policy.batch_norm &&
        row.state == policy.state && row.grad == policy.grad && row.master == policy.master &&
        row.rules == policy.rules && !sums_are_narrow(row) && row.scaler == policy.scaler)
      return &row;
  return nullptr;
}

// What bf16 is for fp16: exponents of fp32 in 16 bits. Null for a policy that has them already.
const Policy* with_wide_range(const Policy& policy) {
  if (policy.low != DType::f16) return nullptr;
  return &policy_named(policy.rules ? "amp-bf16" : "bf16");
}

// Of what a forward pass multiplies: operands as stored, as they are rounded to be multiplied, or codes of a recipe.
Format coarsest(const Policy& policy) {
  Format format = format_of(policy.low);
  const auto add = [&](const Format& other) {
    if (other.fraction_bits < format.fraction_bits) format = other;
  };
  add(policy.math.multiply);
  if (policy.products)
    for (const QuantizedOperand* one : {&policy.products->forward.first, &policy.products->forward.second})
      if (one->rule) add(format_of(one->rule->element));
  return format;
}

class Planner {
 public:
  Planner(const TrialSpec& spec, const Fp32PlanOptions& options)
      : spec_(spec), options_(options), network_(*spec.subject->network), comparison_(spec) {
    layers_ = layers_with_policy(network_);
    const size_t without_loss = layers_.size() - 1;
    if (!spec.subject->has_labels()) layers_.pop_back();  // then the loss is an inner product in fp64
    plan_.layers_in_all = layers_.size();
    plan_.tolerance_is_derived = options.tolerance == 0;
    plan_.tolerance = options.tolerance > 0 ? options.tolerance : derived_tolerance(*spec.policy, without_loss);
    plan_.format = coarsest(*spec.policy).name;
    HM_CHECK(
        options.tolerance > 0 || plan_.tolerance < 1,
        fmt::format(
            "8 unit roundoffs of {} times the root of {} layers are {:.3g}, which limits nothing: give --tolerance",
            plan_.format, without_loss, plan_.tolerance));
  }

  Fp32Plan plan() {
    plan_.fp32 = comparison_.under(policy_named("fp32"));
    PlanHints hints(network_, layers_, plan_.tolerance);
    const SetSearch search{.items = layers_.size(),
                           .most_tests = options_.most_passes - comparison_.passes(),
                           .passes = [this](const ItemSet& set) { return errors_of(set).largest() <= plan_.tolerance; },
                           .hint = [&](const ItemSet& set) { return hints.next(set, errors_of(set)); },
                           .most_hints = options_.most_passes * 2 / 5};
    const FoundSet found = minimal_set(search);
    const ItemSet all(layers_.size(), true), none(layers_.size(), false);
    plan_.all = errors_of(all), plan_.none = errors_of(none), plan_.with_set = errors_of(found.items);
    plan_.all_is_fp32 = plan_.all.codes == plan_.fp32.codes;
    plan_.meets = found.passes, plan_.is_minimal = found.is_minimal;
    if (found.passes) explain(found.items);
    plan_.passes = comparison_.passes();
    return std::move(plan_);
  }

 private:
  // Each set is run once.
  const PassErrors& errors_of(const ItemSet& in_fp32) {
    const auto known = results_.find(in_fp32);
    if (known != results_.end()) return known->second;
    const bool is_all = count_of(in_fp32) == in_fp32.size();
    const Policy& policy = with_precision(*spec_.policy, is_all ? "*=fp32" : precision_text(layers_, in_fp32));
    return results_.emplace(in_fp32, comparison_.under(policy)).first->second;
  }

  void explain(const ItemSet& in_fp32) {
    plan_.precision = precision_text(layers_, in_fp32);
    const auto producers = producers_of(network_);
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (!in_fp32[i]) continue;
      PlannedLayer layer{.name = layers_[i],
                         .kind = layers_[i] == "loss" ? "loss" : kind_in(network_.layers, layers_[i])};
      ItemSet without = in_fp32;
      without[i] = false;
      if (results_.contains(without)) {
        const PassErrors& errors = errors_of(without);
        layer.error = errors.largest();
        if (const TensorError* worst = errors.worst_of(layer.name)) layer.worst = *worst;
      }
      note_largest(layer, producers.at(layer.name));
      if (results_.contains(without)) find_cause(layer, without);
      layer.evidence = evidence_of(layer);
      plan_.layers.push_back(std::move(layer));
    }
  }

  // The largest value of what the layer reads and computes, its running statistics included, in fp64.
  void note_largest(PlannedLayer& layer, std::vector<std::string> names) const {
    names.push_back(layer.name);
    for (const std::string& name : names)
      for (const TensorError& tensor : plan_.all.tensors)
        if (tensor.layer == name && tensor.what != "log_probabilities" && tensor.largest > layer.largest)
          layer.largest = tensor.largest,
          layer.largest_at = tensor.what == "output" ? tensor.layer : tensor.layer + "." + tensor.what;
  }

  // The results with this layer under a row, and the other layers as `set` says. Nothing: no pass is left.
  std::optional<double> with_layer_under(const std::string& layer, const Policy& row, const ItemSet& set) {
    if (comparison_.passes() >= options_.most_passes) return {};
    std::string text = precision_text(layers_, set);
    text += (text.empty() ? "" : ",") + layer + "=" + std::string(row.name);
    return comparison_.under(with_precision(*spec_.policy, text)).largest();
  }

  void find_cause(PlannedLayer& layer, const ItemSet& without) {
    const auto changed = [&](const std::string& what, const Policy& row) {
      const std::optional<double> error = with_layer_under(layer.name, row, without);
      if (error) layer.changed = what, layer.changed_error = *error;
      return error;
    };
    // No sum can help a layer whose values are beyond the format in fp64 too.
    const bool is_beyond = layer.largest > format_of(spec_.policy->low).max_finite();
    const Policy* wide_sums = sums_are_narrow(*spec_.policy) && !is_beyond ? with_wide_sums(*spec_.policy) : nullptr;
    if (wide_sums) {
      const std::optional<double> error = changed("sums in fp32", *wide_sums);
      if (!error) return;
      if (*error <= plan_.tolerance && *error < layer.error / 2) return (void)(layer.cause = PlanCause::accumulation);
    }
    const bool has_lost_values = layer.worst.nonfinite > 0 || layer.worst.zeroed > 0 || layer.worst.subnormal > 0;
    const Policy* wide = has_lost_values || is_beyond ? with_wide_range(*spec_.policy) : nullptr;
    if (wide) {
      const std::optional<double> error = changed("exponents of bf16", *wide);
      if (!error) return;
      const double coarser = kBf16.unit_roundoff() / format_of(spec_.policy->low).unit_roundoff();
      const bool ends_overflow = !std::isfinite(layer.error) && std::isfinite(*error);
      if (ends_overflow || (*error <= coarser * plan_.tolerance && *error < layer.error / 2))
        return (void)(layer.cause = PlanCause::range);
    }
    ItemSet others(layers_.size(), true);
    others[static_cast<size_t>(std::ranges::find(layers_, layer.name) - layers_.begin())] = false;
    if (!results_.contains(others) && comparison_.passes() >= options_.most_passes) return;
    layer.changed = "all other layers in fp32", layer.changed_error = errors_of(others).largest();
    layer.cause = layer.changed_error > plan_.tolerance ? PlanCause::cancellation : PlanCause::rounding;
  }

  std::string evidence_of(const PlannedLayer& layer) const {
    const Format& low = format_of(spec_.policy->low);
    const TensorError& worst = layer.worst;
    std::vector<std::string> parts;
    if (worst.nonfinite > 0)
      parts.push_back(fmt::format("{:.3g}% of {} not finite", 100 * worst.nonfinite, worst.what));
    if (worst.zeroed > 0) parts.push_back(fmt::format("{:.3g}% of {} zeroed", 100 * worst.zeroed, worst.what));
    if (worst.subnormal > 0) parts.push_back(fmt::format("{:.3g}% of {} subnormal", 100 * worst.subnormal, worst.what));
    if (layer.cause == PlanCause::range)
      parts.push_back(fmt::format("largest {:.3g} at {}, {} ends at {:.0f}", layer.largest, layer.largest_at, low.name,
                                  low.max_finite()));
    std::string text;
    for (const std::string& part : parts) text += part + "; ";
    text += fmt::format("error {:.3g}", layer.error);
    if (layer.changed_error >= 0) text += fmt::format("; with {}: error {:.3g}", layer.changed, layer.changed_error);
    if (layer.cause == PlanCause::cancellation)
      text += fmt::format(" = {:.3g} unit roundoffs of {}",
                          layer.changed_error / coarsest(*spec_.policy).unit_roundoff(), coarsest(*spec_.policy).name);
    return text;
  }

  const TrialSpec& spec_;
  const Fp32PlanOptions& options_;
  const Network& network_;
  PassComparison comparison_;
  std::vector<std::string> layers_;
  std::map<ItemSet, PassErrors> results_;
  Fp32Plan plan_;
};

void check(const TrialSpec& spec, const Fp32PlanOptions& options) {
  const std::string policy(spec.policy->name);
  HM_CHECK(spec.subject->network,
           "subject " + spec.subject->id() + " is a function of a program; its layers have no policies of their own");
  HM_CHECK(!spec.subject->network->layers.empty(), "subject " + spec.subject->id() + " has no layers");
  HM_CHECK(spec.policy->layers.empty(),
           "policy " + policy + " gives layers policies already; leave out its precision=");
  HM_CHECK(coarsest(*spec.policy).fraction_bits < kFp32.fraction_bits,
           "policy " + policy + " has no layer below fp32; fp16, bf16, amp-fp16, ... have");
  constexpr int kFewestPasses = 4;
  HM_CHECK(options.most_passes >= kFewestPasses,
           "a plan needs four passes or more: fp64, fp32, all and no layers in fp32");
}

}  // namespace

std::string_view name_of(PlanCause cause) {
  switch (cause) {
    case PlanCause::accumulation:
      return "accumulation";
    case PlanCause::range:
      return "range";
    case PlanCause::cancellation:
      return "cancellation";
    case PlanCause::rounding:
      return "rounding";
    case PlanCause::unknown:
      return "unknown";
  }
  return "";
}

double derived_tolerance(const Policy& policy, size_t layers) {
  return 8 * coarsest(policy).unit_roundoff() * std::sqrt(static_cast<double>(std::max<size_t>(layers, 1)));
}

Fp32Plan fp32_plan(const TrialSpec& spec, const Fp32PlanOptions& options) {
  check(spec, options);
  return Planner(spec, options).plan();
}

}  // namespace halfmark::accuracy
