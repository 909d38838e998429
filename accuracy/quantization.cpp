// The quantization harness: what the quantisation of operands loses while a model trains under a recipe.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "models/quantized_products.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& quantization_table() {
  static const std::vector<MetricRow> rows = {
      {"quantization.operands", "1", Better::neither, Kind::exact,
       "how many operands of products are quantised in a step; a copy for a second product counts where it is "
       "quantised "
       "again"},
      {"quantization.flushed", "1", Better::lower, Kind::bounded,
       "in the last step, at LAYER/OPERAND/PRODUCT (fc1/dy/weights) and for all layers at x, w, dy: share of elements "
       "that "
       "are not zero and whose code stands for zero"},
      {"quantization.saturated", "1", Better::lower, Kind::bounded,
       "in the last step, likewise: share of elements whose scaled number rounds beyond the largest code"},
      {"quantization.scale", "1", Better::neither, Kind::bounded,
       "in the last step: what the numbers are multiplied by before they are rounded; where tiles have scales, the "
       "median"},
      {"quantization.first_flushed", "1", Better::lower, Kind::bounded, "quantization.flushed in the first step"},
      {"quantization.first_saturated", "1", Better::lower, Kind::bounded,
       "quantization.saturated in the first step: delayed scaling begins with the scale 1"},
      {"quantization.scales", "1", Better::neither, Kind::information, "over the steps: quantization.scale"},
  };
  return rows;
}

struct Lost {
  double elements = 0, flushed = 0, saturated = 0, scale = 1;
  void add(const models::QuantizedOnce& one) {
    elements += one.elements, flushed += one.flushed, saturated += one.saturated, scale = one.scale;
  }
};

// By place, and by operand over all layers.
std::map<std::string, Lost> lost_in(const models::QuantizationLog& log) {
  std::map<std::string, Lost> all;
  for (const models::QuantizedOnce& one : log.entries()) {
    all[fmt::format("{}/{}/{}", one.layer, one.operand, one.product)].add(one);
    all[one.operand].add(one);
  }
  return all;
}

bool is_of_a_layer(const std::string& at) { return at.find('/') != std::string::npos; }

Findings measure_quantization(const TrialSpec& spec) {
  const int steps = std::stoi(axis_value(quantization_harness(), spec, "steps"));
  Trial trial(spec);
  models::QuantizationLog log;
  std::map<std::string, Lost> first, last;
  std::map<std::string, std::vector<double>> scales;
  std::vector<double> numbers;
  size_t operands = 0;
  for (int step = 0; step < steps; ++step) {
    log.clear();
    trial.train_step(step);
    last = lost_in(log), operands = log.entries().size();
    if (step == 0) first = last;
    numbers.push_back(step + 1);
    for (const auto& [at, lost] : last)
      if (is_of_a_layer(at)) scales[at].push_back(lost.scale);
  }
  FindingsWriter out(quantization_table());
  out.number("quantization.operands", "", static_cast<double>(operands));
  for (const auto& [at, lost] : last) {
    out.number("quantization.flushed", at, lost.flushed / lost.elements);
    out.number("quantization.saturated", at, lost.saturated / lost.elements);
    out.number("quantization.first_flushed", at, first[at].flushed / first[at].elements);
    out.number("quantization.first_saturated", at, first[at].saturated / first[at].elements);
    if (!is_of_a_layer(at)) continue;
    out.number("quantization.scale", at, lost.scale);
    out.curve("quantization.scales", at, numbers, scales[at]);
  }
  return out.take();
}

std::optional<std::string> refuse_quantization(const TrialSpec& spec) {
  if (models::quantizes_products(*spec.policy)) return std::nullopt;
  return fmt::format("policy {} quantises no operands; fp8-delayed and others do", spec.policy->name);
}

}  // namespace

Harness quantization_harness() {
  return {
      .name = "quantization",
      .about = "elements that the quantisation of linear layers makes zero or cuts to the largest code, and its scales",
      .axes = {{"steps", {"10"}, AxisNumbers{1, 1e6, true}, "training steps"}},
      .metrics = quantization_table(),
      .refuses = refuse_quantization,
      .measure = measure_quantization};
}

}  // namespace halfmark::accuracy
