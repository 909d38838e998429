// The same_bits experiment: whether a training step has the same bits under two policies, apart from the loss scale.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& same_bits_table() {
  static const std::vector<MetricRow> rows = {
      {"same_bits.different", "1", Better::lower, Kind::exact,
       "share of numbers that differ from those of the other policy in the first step: at activation, the results of "
       "layers as stored; at "
       "loss, the loss and the logarithms of probabilities; at gradient, gradients "
       "without the loss scale, which divides out exactly where nothing is subnormal"},
      {"same_bits.compared", "1", Better::neither, Kind::information, "numbers compared"},
      {"same_bits.missing", "1", Better::lower, Kind::exact, "tensors that only one of the policies has"},
  };
  return rows;
}

const Harness& same_bits_self() {
  static const Harness harness = same_bits_harness();
  return harness;
}

using Numbers = std::map<std::string, std::vector<double>>;

Numbers numbers_of_step(const TrialSpec& spec) {
  Trial trial(spec);
  Numbers numbers;
  double scale = 1;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    std::vector<double> values = tensor.values();
    if (name.starts_with("gradient/"))
      for (double& value : values) value /= scale;
    numbers[name] = std::move(values);
  });
  trial.load_batch(0), trial.forward();
  scale = static_cast<double>(trial.scaler().scale());
  trial.backward();
  return numbers;
}

std::string_view kind_of(std::string_view name) {
  if (name == "activation/loss" || name == "activation/log_probabilities") return "loss";
  return name.substr(0, name.find('/'));
}

Findings measure_same_bits(const TrialSpec& spec) {
  const Policy& other = policy_named(axis_value(same_bits_self(), spec, "against"));
  const Numbers own = numbers_of_step(spec), others = numbers_of_step(spec.under(other));
  FindingsWriter out(same_bits_table());
  double missing = 0;
  for (const std::string_view kind : {"activation", "loss", "gradient"}) {
    double different = 0, compared = 0;
    for (const auto& [name, values] : own) {
      if (kind_of(name) != kind) continue;
      const auto found = others.find(name);
      if (found == others.end() || found->second.size() != values.size()) {
        ++missing;
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        const double a = values[i], b = found->second[i];
        different += a != b && !(std::isnan(a) && std::isnan(b)), ++compared;
      }
    }
    out.number("same_bits.different", std::string(kind), compared > 0 ? different / compared : 0);
    out.number("same_bits.compared", std::string(kind), compared);
  }
  missing +=
      static_cast<double>(std::ranges::count_if(others, [&](const auto& one) { return !own.contains(one.first); }));
  out.number("same_bits.missing", "", missing);
  return out.take();
}

}  // namespace

Harness same_bits_harness() {
  std::vector<std::string_view> names;
  for (const Policy& policy : policies()) names.push_back(policy.name);
  return {.name = "same_bits",
          .about = "whether a training step has the same bits under another policy, apart from the loss scale",
          .axes = {{"against", names, {}, "the other policy"}},
          .metrics = same_bits_table(),
          .measure = measure_same_bits};
}

}  // namespace halfmark::accuracy
