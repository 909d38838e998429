// A synthetic report with valid and with suspect times.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "reports/record/report.h"

namespace halfmark::reports {

inline Measurement seconds(const std::string& metric, const std::string& at, double value) {
  Measurement time{.metric = metric, .at = at, .value = value, .unit = "s", .better = Better::lower};
  time.kind = Kind::sampled;
  time.samples = {value * 0.99, value, value * 1.01};
  return time;
}

// `factor` multiplies every time.
inline Report timed_report(double factor = 1) {
  const std::string subject = "mlp/b32_i64_h128_o10";
  Report report;
  report.environment = {{"halfmark", {{"version", "0.1.0"}, {"git", "57f0f4501b79"}, {"build_type", "Release"}}},
                        {"machine", "bench-01"},
                        {"cpu", {{"model", "Example 9000"}, {"cores", 2}}}};
  report.run = {"2026-11-21T19:11:39Z", 49, "halfmark run", 0, "quick"};

  const auto record = [&](const std::string& policy, const std::string& harness) {
    Record one;
    one.subject = subject;
    one.device = "cpu";
    one.policy = policy;
    one.harness = harness;
    one.id = subject + "/cpu/" + policy + "/" + harness;
    return one;
  };
  Record times = record("fp32", "throughput");
  times.measurements = {seconds("time.forward", "hot", factor * 9.74615e-05),
                        seconds("time.step", "hot", factor * 3.040735e-04),
                        seconds("time.step", "cold", factor * 5.42722e-04),
                        seconds("time.backward", "hot", std::numeric_limits<double>::quiet_NaN()),
                        seconds("time.optimizer", "hot", factor * 6.27925e-05)};
  Record emulated = record("fp16", "throughput");
  emulated.status = Status::suspect;
  emulated.reason = "an emulated kernel ran";
  emulated.measurements = {seconds("time.step", "hot", 0.1)};
  Record error = record("fp32", "error");
  error.measurements = {{.metric = "error.nmse", .at = "output", .value = 2.19e-07, .better = Better::lower},
                        {.metric = "error.nmse", .at = "gradient/w", .value = 3e-07, .better = Better::lower},
                        {.metric = "error.max_relative", .at = "output", .value = HUGE_VAL, .better = Better::lower}};
  Record memory = record("fp32", "memory");
  memory.measurements = {
      {.metric = "memory.peak", .at = "train", .value = 645116, .unit = "B", .better = Better::lower}};
  Record failed = record("bf16", "memory");
  failed.status = Status::failed;
  failed.reason = "out of memory";
  failed.measurements = memory.measurements;
  report.records = {times, emulated, error, memory, failed};
  return report;
}

}  // namespace halfmark::reports
