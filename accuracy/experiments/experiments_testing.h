// Shared by the tests of this folder: trial specs, and numbers of findings.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {

inline TrialSpec experiment_spec(const std::string& subject, std::string_view policy, Axes axes = {}) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  spec.settings = spec.subject->settings;
  return spec;
}

inline const Measurement& measured(const Findings& findings, const std::string& metric, const std::string& at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return one;
  throw Error("no " + metric + " at '" + at + "'");
}
inline double number_at(const Findings& findings, const std::string& metric, const std::string& at = "") {
  return measured(findings, metric, at).value;
}
inline bool has_number(const Findings& findings, const std::string& metric, const std::string& at = "") {
  for (const Measurement& one : findings.measurements)
    if (one.metric == metric && one.at == at) return true;
  return false;
}
inline const Series& curve_at(const Findings& findings, const std::string& metric, const std::string& at = "") {
  for (const Series& one : findings.series)
    if (one.metric == metric && one.at == at) return one;
  throw Error("no curve " + metric + " at '" + at + "'");
}
// Measured by a harness, whose findings are checked against its table.
inline Findings findings_of(const Harness& harness, const TrialSpec& spec) {
  Findings findings = harness.measure(spec);
  check_findings(harness, findings);
  return findings;
}

}  // namespace halfmark::accuracy
