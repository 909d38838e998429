// A second opinion on a plan: fresh trials, errors computed here, no code of the planner. What it finds wrong, in words.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "accuracy/experiments/fp32_plan.h"
#include "kernels/devices.h"

namespace halfmark::accuracy::plan_verification {

struct OutputsOfStep {
  std::vector<double> training, evaluation;
};

inline OutputsOfStep outputs_of(const TrialSpec& spec) {
  Trial trial(spec);
  trial.load_batch(0);
  OutputsOfStep found;
  found.training = trial.forward().values();
  found.evaluation = trial.infer().values();
  return found;
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double off = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) off += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::isfinite(off) ? std::sqrt(off / size) : HUGE_VAL;
}

// Of outputs only; a network whose loss is the fault needs another check.
inline double error_with(const TrialSpec& spec, const OutputsOfStep& exact, const std::vector<std::string>& in_fp32) {
  std::string text;
  for (const std::string& layer : in_fp32) text += (text.empty() ? "" : ",") + layer + "=fp32";
  const std::string name(spec.policy->name);
  const OutputsOfStep own = outputs_of(spec.under(policy_named(text.empty() ? name : name + "+precision=" + text)));
  return std::fmax(distance(own.training, exact.training), distance(own.evaluation, exact.evaluation));
}

// Empty: the set meets the tolerance, and without any one of its layers it does not.
inline std::vector<std::string> faults_of(const TrialSpec& spec, const Fp32Plan& plan) {
  const OutputsOfStep exact = outputs_of(spec.oracle(Inputs::drawn));
  std::vector<std::string> set, faults;
  for (const PlannedLayer& layer : plan.layers) set.push_back(layer.name);
  if (!(error_with(spec, exact, set) <= plan.tolerance)) faults.emplace_back("a needed layer is missing");
  for (size_t i = 0; i < set.size(); ++i) {
    std::vector<std::string> without = set;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    if (error_with(spec, exact, without) <= plan.tolerance) faults.push_back(set[i] + " is not needed");
  }
  return faults;
}

}  // namespace halfmark::accuracy::plan_verification
