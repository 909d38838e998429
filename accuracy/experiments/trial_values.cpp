#include "accuracy/experiments/trial_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::accuracy {

ModelValues values_of(Trial& trial) {
  ModelValues found;
  for (const Param* param : trial.params())
    found.params.push_back((param->master.empty() ? param->value : param->master).values());
  for (const State* state : trial.states()) found.states.push_back(state->value.values());
  return found;
}

void put_values(Trial& trial, const ModelValues& values) {
  const std::vector<Param*> params = trial.params();
  const std::vector<State*> states = trial.states();
  HM_CHECK(params.size() == values.params.size() && states.size() == values.states.size(),
           "the values are those of another model");
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i]->master.empty()) params[i]->master.set_values(values.params[i]);
    params[i]->value.set_values(values.params[i]);
  }
  for (size_t i = 0; i < states.size(); ++i) states[i]->value.set_values(values.states[i]);
}

ModelValues rounded_values(ModelValues values, const Format& format) {
  for (auto* all : {&values.params, &values.states})
    for (std::vector<double>& one : *all)
      for (double& value : one) value = round_to(format, value);
  return values;
}

double share_of_equal_values(const std::vector<double>& a, const std::vector<double>& b) {
  HM_CHECK(a.size() == b.size(), "values of different number cannot be equal");
  double equal = 0;
  for (size_t i = 0; i < a.size(); ++i)
    equal += std::bit_cast<uint64_t>(a[i]) == std::bit_cast<uint64_t>(b[i]) || (std::isnan(a[i]) && std::isnan(b[i]));
  return a.empty() ? 1 : equal / static_cast<double>(a.size());
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  HM_CHECK(a.size() == b.size(), "values of different number have no distance");
  double squares = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]), all += b[i] * b[i];
  return squares == 0 ? 0 : std::sqrt(squares / all);
}

std::vector<double> all_params(const ModelValues& values) {
  std::vector<double> all;
  for (const std::vector<double>& one : values.params) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<double> all_values(const ModelValues& values) {
  std::vector<double> all = all_params(values);
  for (const std::vector<double>& one : values.states) all.insert(all.end(), one.begin(), one.end());
  return all;
}

Subject with_input(const Subject& subject, const Shape& input) {
  HM_CHECK(subject.network, subject.id() + ": only a function of a program knows its network");
  Subject made = subject_of_network(input, subject.data, subject.classes, *subject.network);
  made.name = subject.name, made.sizes = subject.sizes + "@" + input.text();
  made.loss = subject.loss, made.settings = subject.settings;
  return made;
}

Subject with_network(const Subject& subject, Network network, const std::string& suffix) {
  Subject made = subject_of_network(subject.input, subject.data, subject.classes, std::move(network));
  made.name = subject.name, made.sizes = subject.sizes + "@" + suffix;
  made.loss = subject.loss, made.settings = subject.settings;
  return made;
}

Shape with_batch(const Shape& input, int64_t batch) {
  std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
  extents[0] = batch;
  return Shape(extents);
}

}  // namespace halfmark::accuracy
