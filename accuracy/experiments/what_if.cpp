// The harness `what_if`: the tensors of a training step under a policy, and what every other format would have lost of each.
// Nothing is trained in those formats: one rounding of each tensor, as it is stored (gradients with the loss scale).
#include "accuracy/experiments/what_if.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/ranking.h"
#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& what_if_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"what_if.nmse", "1", Better::lower, information,
       "mean over the tensors of a kind (samples) of sum (rounded - x)^2 / sum x^2; at: kind/format; standard error: "
       "over "
       "the tensors"},
      {"what_if.worst_nmse", "1", Better::lower, information, "that of the tensor that loses most"},
      {"what_if.clipped", "1", Better::lower, information,
       "share of all elements beyond the largest number of the format, after the scale of their tile"},
      {"what_if.flushed", "1", Better::lower, information, "share of all elements that are not zero and become zero"},
      {"what_if.elements", "1", Better::neither, information, "elements of a kind that were rounded"},
      {"what_if.tensors", "1", Better::neither, information, "their tensors"},
      {"what_if.nonfinite", "1", Better::lower, information,
       "elements that were infinite or NaN already and are left out"},
  };
  return rows;
}

struct LossOfFormat {
  std::vector<double> nmse;
  double clipped = 0, flushed = 0;  // elements
};

struct KindOfTensor {
  double elements = 0, tensors = 0, nonfinite = 0;
  std::map<std::string_view, LossOfFormat> losses;

  void add(const Tensor& tensor, bool is_weight) {
    std::vector<float> values;
    for (const double value : tensor.values()) {
      if (!std::isfinite(value)) ++nonfinite;
      values.push_back(std::isfinite(value) ? static_cast<float>(value) : 0.0F);
    }
    const auto count = static_cast<double>(values.size());
    elements += count, ++tensors;
    for (const WhatIfFormat& format : what_if_formats()) {
      const MatrixView matrix = view_of_tensor(values, tensor.shape(), is_weight, format.view);
      const FormattedMatrix rounded = format.in_format(matrix);
      const WhatIfLoss lost = what_is_lost(matrix.values, rounded.values);
      LossOfFormat& all = losses[format.name];
      all.nmse.push_back(lost.nmse);
      all.clipped += rounded.clipped * count, all.flushed += lost.flushed * count;
    }
  }
};

Findings measure_what_if(const TrialSpec& spec) {
  const int64_t steps = std::stoll(axis_value(what_if_harness(), spec, "steps"));
  Trial trial(spec);
  for (int64_t step = 0; step < steps; ++step) trial.train_step(step);
  std::set<std::string> weights;
  std::map<std::string, KindOfTensor> kinds;
  for (const Param* param : trial.params()) {
    // Biases and parameters of norms stay in a wide format in every recipe.
    if (param->value.shape().rank() < 2) continue;
    weights.insert("gradient/" + param->name);
    kinds["weight"].add(param->value, true);
  }
  std::set<std::string> all_params;
  for (const Param* param : trial.params()) all_params.insert("gradient/" + param->name);
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    if (tensor.shape().rank() < 2 || !is_floating(tensor.dtype())) return;
    if (name.starts_with("activation/"))
      kinds["activation"].add(tensor, false);
    else if (weights.contains(name))
      kinds["weight_gradient"].add(tensor, true);
    else if (!all_params.contains(name))
      kinds["gradient"].add(tensor, false);
  });
  trial.load_batch(steps);
  trial.forward();
  trial.backward();

  FindingsWriter out(what_if_table());
  for (const auto& [kind, found] : kinds) {
    out.number("what_if.elements", kind, found.elements);
    out.number("what_if.tensors", kind, found.tensors);
    out.number("what_if.nonfinite", kind, found.nonfinite);
    for (const auto& [format, loss] : found.losses) {
      const std::string at = kind + "/" + std::string(format);
      const SampleMean mean = sample_mean(loss.nmse);
      Measurement& nmse = out.number("what_if.nmse", at, mean.mean);
      nmse.samples = loss.nmse;
      if (std::isfinite(mean.error)) nmse.standard_error = mean.error;
      out.number("what_if.worst_nmse", at, *std::max_element(loss.nmse.begin(), loss.nmse.end()));
      out.number("what_if.clipped", at, loss.clipped / found.elements);
      out.number("what_if.flushed", at, loss.flushed / found.elements);
    }
  }
  return out.take();
}

}  // namespace

MatrixView view_of_tensor(const std::vector<float>& values, const Shape& shape, bool is_weight, ViewOfTensor view) {
  const auto all = static_cast<size_t>(shape.elements());
  if (is_weight) return {values, static_cast<size_t>(shape[0]), all / static_cast<size_t>(shape[0])};
  const bool is_image = shape.rank() == 4;
  const auto channels = static_cast<size_t>(is_image ? shape[1] : shape[shape.rank() - 1]);
  const size_t pixels = is_image ? static_cast<size_t>(shape[2] * shape[3]) : 1, rows = all / channels;
  MatrixView made{std::vector<float>(all), rows, channels};
  if (view == ViewOfTensor::channels) std::swap(made.rows, made.depth);
  for (size_t row = 0; row < rows; ++row)
    for (size_t c = 0; c < channels; ++c) {
      const float value = values[(row / pixels * channels + c) * pixels + row % pixels];
      made.values[view == ViewOfTensor::channels ? c * rows + row : row * channels + c] = value;
    }
  return made;
}

Harness what_if_harness() {
  return {.name = "what_if",
          .about = "error, clipped and flushed shares of the tensors of a step in fp16, bf16, fp8, MXFP8 and NVFP4",
          .axes = {{"steps",
                    {"20", "0", "100"},
                    AxisNumbers{0, 1e6, true},
                    "training steps before the one that is measured"}},
          .metrics = what_if_table(),
          .refuses = refusal_of_fp64,
          .measure = measure_what_if};
}

}  // namespace halfmark::accuracy
