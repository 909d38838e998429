// What the tests of experiments share: a trial of a subject on a device, and numbers and curves of its findings by name.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "accuracy/accuracy.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::experiment_testing {

inline TrialSpec experiment_trial(std::string_view subject, std::string_view policy, Axes axes = {},
                                  const std::string& device = "cpu") {
  TrialSpec spec;
  spec.subject = &subject_named(std::string(subject));
  spec.device = open_device(device);
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  return spec;
}

// One thread while it exists: thousands of small operations wait for each other's threads on a busy machine.
struct OneThread {
  int before = host_threads();
  OneThread() { set_host_threads(1); }
  ~OneThread() { set_host_threads(before); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

// Also checks what the program checks of findings.
inline Findings findings_of(const Harness& harness, const TrialSpec& spec) {
  const OneThread one_thread;
  if (const auto refusal = refusal_of(harness, spec)) throw Error(*refusal);
  Findings found = harness.measure(spec);
  check_findings(harness, found);
  return found;
}

inline double number_at(const Findings& found, std::string_view metric, std::string_view at = "") {
  for (const Measurement& one : found.measurements)
    if (one.metric == metric && one.at == at) return one.value;
  throw Error("no " + std::string(metric) + " at '" + std::string(at) + "'");
}

inline double curve_at(const Findings& found, std::string_view metric, std::string_view at, double x) {
  for (const Series& curve : found.series)
    for (size_t i = 0; i < curve.x.size(); ++i)
      if (curve.metric == metric && curve.at == at && curve.x[i] == x) return curve.y[i];
  throw Error("no " + std::string(metric) + " at '" + std::string(at) + "' for " + std::to_string(x));
}

// Whether the findings meet what the harness expects of the trial.
inline bool meets_expectation(const Harness& harness, const TrialSpec& spec, const Findings& found) {
  const auto expect = harness.expects(spec);
  if (!expect) return false;
  const double seen = number_at(found, expect->metric, expect->at);
  if (expect->relation == "<") return seen < expect->limit;
  if (expect->relation == ">") return seen > expect->limit;
  return expect->relation == "==" && seen == expect->limit;
}

}  // namespace halfmark::accuracy::experiment_testing
