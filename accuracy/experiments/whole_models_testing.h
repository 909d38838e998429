// Shared by the tests of experiments on whole models: trial specs with the settings of their subject, whole measurements.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/experiment_testing.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {

using experiment_testing::findings_of;
using experiment_testing::number_at;

// As the program makes it.
inline TrialSpec experiment_spec(const std::string& subject, std::string_view policy, Axes axes = {}) {
  TrialSpec spec = experiment_testing::experiment_trial(subject, policy, std::move(axes));
  spec.settings = spec.subject->settings;
  return spec;
}

inline const Measurement& measured(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one;
  throw Error("no " + std::string(metric) + " at '" + std::string(at) + "'");
}
inline bool has_number(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return true;
  return false;
}
inline const Series& whole_curve(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Series& one : findings.series)
    if (one.metric == metric && one.at == at) return one;
  throw Error("no curve " + std::string(metric) + " at '" + std::string(at) + "'");
}

}  // namespace halfmark::accuracy
