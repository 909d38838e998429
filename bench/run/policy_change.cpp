#include "bench/run/policy_change.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "kernels/number/error.h"
#include "models/policy.h"
#include "models/scaler_spec.h"
#include "models/subject.h"

namespace halfmark::bench {

namespace {

// What keeps a case from the change; nothing if it can be changed.
std::optional<std::string> obstacle(const Case& one, const PolicyChange& change) {
  if (one.axes.contains("control")) return "is a control, whose policy is part of its expectation";
  if (!change.rules.empty() && !one.policy->rules)
    return fmt::format("policy {} casts nothing, so it takes no cast rules", one.policy->name);
  if (change.precision.empty()) return {};
  const Policy& policy = policy_named(fmt::format("{}+precision={}", one.policy->name, change.precision));
  if (auto what = models::unmatched_layer(policy, *one.subject)) return what;
  return models::unquantised_layer(policy, *one.subject);
}

// Said of a misspelt name whatever the policies of the cases are: that one of them cannot be changed is the smaller mistake.
void require_known_names(const PolicyChange& change) {
  if (!change.rules.empty()) (void)models::cast_rules_named(change.rules);
  for (const std::string& scaler : change.scalers) (void)models::scaler_of(scaler);
  if (change.precision.empty()) return;
  if (change.precision.find('+') != std::string::npos)
    throw Error(
        "--precision '" + change.precision +
        "': a layer takes a row of halfmark list policies, without changes; --scaler and --cast-rules are for the "
        "whole model");
  (void)policy_named("fp32+precision=" + change.precision);
}

}  // namespace

std::vector<Case> under_change(const std::vector<Case>& cases, const PolicyChange& change) {
  require_known_names(change);
  const std::vector<std::string> one_scaler = {""};
  std::vector<Case> changed;
  std::set<std::string> seen;
  std::string first;
  for (const Case& one : cases) {
    if (const std::optional<std::string> what = obstacle(one, change)) {
      if (first.empty()) first = one.id() + ": " + *what;
      continue;
    }
    for (const std::string& scaler : change.scalers.empty() ? one_scaler : change.scalers) {
      std::string name(one.policy->name);
      if (!change.rules.empty()) name += "+rules=" + change.rules;
      if (!scaler.empty()) name += "+scaler=" + scaler;
      if (!change.precision.empty()) name += "+precision=" + change.precision;
      Case other = one;
      other.policy = &policy_named(name);
      if (seen.insert(other.id()).second) changed.push_back(std::move(other));
    }
  }
  if (changed.empty()) throw Error("no selected case can be changed so; " + first);
  return changed;
}

}  // namespace halfmark::bench
