// A small report that uses every field, for the tests of this folder.
#pragma once

#include <fmt/format.h>

#include "reports/record/report.h"

namespace halfmark::reports {

inline Report sample_report() {
  Report report;
  report.environment = {{"machine", "bench-01"},
                        {"cpu", {{"model", "Example 9000"}, {"threads", 16}, {"f16", false}}},
                        {"libraries", {{"onednn", "2.6.3"}, {"cudnn", nullptr}}}};
  report.run = {"2025-03-01T12:00:00Z", 12.5, "halfmark run --suite smoke --shard 1/2", 42, "smoke", false, 3, "1/2",
                {5, "9b0c5d1e00aa7f42"}};

  Record first;
  first.id = "mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/error/eval=half";
  first.subject = "mlp/b16_i32_h64_o8";
  first.device = "sim:hopper";
  first.policy = "amp-fp16";
  first.harness = "error";
  first.axes = {{"eval", "half"}};
  first.repro = "halfmark run --case " + first.id;
  first.numerics = "instruction-exact";
  first.seconds = 0.25;
  first.kernels = {{"matmul", "forward", "f16,f16->f16", "tensor-core", "emulated", 2, {"onednn: no f16 here"}}};
  Measurement nmse{.metric = "error.nmse", .at = "output", .value = 2.19e-07, .better = Better::lower};
  nmse.kind = Kind::bounded;
  nmse.bound = 1.1e-06;
  nmse.samples = {2.19e-07, 2.25e-07};
  first.measurements = {nmse};
  first.series = {{.metric = "error.ulp_histogram", .at = "output", .x = {0, 1, 2}, .y = {90, 9, 1}}};
  first.expectation = Expectation{"error.nmse", "output", "<", 1e-3, 2.19e-07, true};
  first.fingerprint = "5d0c";
  first.determinism = {24, 1};
  first.lint = {{"not_unscaled", {{"gradients / those of fp64", 65532.5}, {"step", 0}}, "Unscale.", "S0-10"},
                {"skip_streak", {{"skipped steps in a row", 12}}, "Look for NaN.", ""}};

  Record second;
  second.id = "mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/throughput";
  second.subject = first.subject;
  second.device = first.device;
  second.policy = first.policy;
  second.harness = "throughput";
  second.status = Status::skipped;
  second.reason = "a simulated device has no speed";
  report.records = {first, second};
  return report;
}

}  // namespace halfmark::reports
