// The dtypes experiment: in which dtype each tensor of a training step is stored.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& dtypes_table() {
  static const std::vector<MetricRow> rows = {
      {"dtypes.tensors", "1", Better::neither, Kind::exact,
       "at KIND/DTYPE: tensors of a training step in this dtype. KIND: input, activation, activation_gradient (of the "
       "loss with respect to a layer's output), parameter, parameter_gradient (as the optimizer gets it), master, "
       "statistics, optimizer, loss"},
      {"dtypes.bits", "bit", Better::neither, Kind::exact, "at KIND/least and KIND/most: of those dtypes"},
  };
  return rows;
}

Findings measure_dtypes(const TrialSpec& spec) {
  std::map<std::string, std::map<std::string, double>> counts;
  std::map<std::string, std::pair<int, int>> bits;
  const auto count = [&](const std::string& kind, const Tensor& tensor) {
    if (tensor.empty() || !is_floating(tensor.dtype())) return;
    counts[kind][std::string(name_of(tensor.dtype()))] += 1;
    const int width = bits_of(tensor.dtype());
    const auto [entry, is_new] = bits.try_emplace(kind, width, width);
    if (!is_new) entry->second = {std::min(entry->second.first, width), std::max(entry->second.second, width)};
  };
  Trial trial(spec);
  const auto is_of_parameter = [&](const std::string& name) {
    for (const Param* param : trial.params())
      if (name == "gradient/" + param->name) return true;
    return false;
  };
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    if (name == "activation/loss") return count("loss", tensor);
    if (name.starts_with("activation/")) return count("activation", tensor);
    if (name != "gradient/input" && !is_of_parameter(name)) count("activation_gradient", tensor);
  });
  trial.load_batch(0);
  count("input", trial.input());
  trial.forward(), trial.backward();
  for (const Param* param : trial.params()) {
    count("parameter", param->value), count("master", param->master);
    count("parameter_gradient", param->grad);
  }
  for (const State* state : trial.states()) count("statistics", state->value);
  trial.update();
  for (const models::Optimizer::State& state : trial.optimizer().states())
    for (const Tensor* tensor : {&state.first, &state.second, &state.compensation}) count("optimizer", *tensor);

  FindingsWriter out(dtypes_table());
  for (const auto& [kind, of_kind] : counts) {
    for (const auto& [dtype, number] : of_kind) out.number("dtypes.tensors", kind + "/" + dtype, number);
    out.number("dtypes.bits", kind + "/least", bits[kind].first);
    out.number("dtypes.bits", kind + "/most", bits[kind].second);
  }
  return out.take();
}

}  // namespace

Harness dtypes_harness() {
  return {.name = "dtypes",
          .about = "in which dtype each tensor of a training step is stored",
          .axes = {},
          .metrics = dtypes_table(),
          .measure = measure_dtypes};
}

}  // namespace halfmark::accuracy
