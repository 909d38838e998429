// The time of a training step on GPUs that were not measured, by roofline from their published peaks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/predict/peaks.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// A step on a GPU: no measurement, and of another type than one, so that no table of measurements can take it.
struct PredictedStep {
  const PublishedGpu* gpu = nullptr;
  std::string policy;           // with the settings of its axes: "amp-fp16 cast_cache=off"
  std::string operands;         // of its matrix products, the type whose peak counts: "f16"; empty: it has none
  bool has_reorders = false;    // the bytes include changes of layout, which the device of the record needs
  double flops = 0, bytes = 0;  // of the record
  double seconds = 0;           // at least: max(flops / peak, bytes / bandwidth)
  bool by_bandwidth = false;    // the second of these is the larger one
  std::optional<double> gain;   // predicted seconds of fp32 / predicted seconds
  std::optional<double> error;  // error.nmse of the output on the simulated device of its architecture
  std::string error_from;       // "sim:ampere of sim.json"
};

// Steps whose work and bytes come from the records SUBJECT/DEVICE/POLICY/throughput of one report.
struct PredictedSteps {
  std::string report, device, subject;
  std::vector<PredictedStep> steps;  // by GPU, then in the order of the report
};

struct Predictions {
  std::vector<PredictedSteps> groups;
  std::vector<std::string> measured;  // GPUs that have measurements, one line each
  std::vector<std::pair<std::string, std::vector<std::string>>> impossible;  // a reason, and the ids of its records
};

// Of every record of the harness throughput.
Predictions predict(const std::vector<NamedReport>& reports, const std::vector<const PublishedGpu*>& gpus);

// Whether this operation is a matrix product or a convolution, whose operands choose the peak.
bool is_matrix_product(std::string_view operation);

}  // namespace halfmark::reports
