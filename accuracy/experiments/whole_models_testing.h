// Shared by the tests of experiments on whole models: trial specs with the settings of their subject, whole measurements.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {

// As the program makes it.
inline TrialSpec experiment_spec(const std::string& subject, std::string_view policy, Axes axes = {}) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  spec.settings = spec.subject->settings;
  return spec;
}

inline const Measurement& measured(const Findings& findings, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one;
  throw Error("no " + std::string(metric) + " at '" + std::string(at) + "'");
}
inline double number_at(const Findings& findings, std::string_view metric, std::string_view at = "") {
  return measured(findings, metric, at).value;
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

// Measured by a harness that accepts the trial; findings are checked against its table, as the program does.
inline Findings findings_of(const Harness& harness, const TrialSpec& spec) {
  if (const auto refusal = refusal_of(harness, spec)) throw Error(*refusal);
  Findings findings = harness.measure(spec);
  check_findings(harness, findings);
  return findings;
}

}  // namespace halfmark::accuracy
