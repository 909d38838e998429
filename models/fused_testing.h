// Shared by the tests of layers that a pass fuses: forward and backward of one layer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {

struct Ran {
  std::vector<double> output, input_gradient;
  std::map<std::string, std::vector<double>> gradients, states, seen;  // seen: by taps
  std::multiset<std::string> operations;  // each as often as it ran, also as part of another operation's row
};

struct RunOptions {
  const char* policy = "fp64";
  bool fuses = true, training = true;
  const char* device = "cpu";
};

inline Ran run_layers(const std::function<LayerPtr(const Init&)>& make, const Shape& input, const RunOptions& options) {
  const std::shared_ptr<Device> device = open_device(options.device);
  const Policy& policy = policy_named(options.policy);
  const LayerPtr layer = make(Init{*device, policy, RandomKey(7)});
  Pass pass(*device, policy, options.training);
  pass.fuses = options.fuses;
  Ran ran;
  pass.tap = [&](const std::string& name, const Tensor& tensor) { ran.seen[name] = tensor.values(); };
  const auto tensor = [&](const Shape& shape, uint64_t seed) {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = round_to(kBf16, RandomKey(seed).normal(i));
    return Tensor::from(*device, shape, policy.low, values);
  };
  Saved saved;
  const KernelLog log;
  ran.output = layer->forward(pass, tensor(input, 1), &saved).values();
  ran.input_gradient = layer->backward(pass, tensor(layer->output_shape(input), 2), saved).values();
  EXPECT_TRUE(saved.empty());
  for (const Param* param : layer->params()) ran.gradients[param->name] = param->grad.values();
  for (const State* state : layer->states()) ran.states[state->name] = state->value.values();
  for (const LoggedKernel& one : log.entries())
    for (uint64_t call = 0; call < one.calls; ++call) ran.operations.insert(one.operation);
  return ran;
}

inline void expect_alike(const Ran& a, const Ran& b, double tolerance) {
  EXPECT_LE(distance(a.output, b.output), tolerance);
  EXPECT_LE(distance(a.input_gradient, b.input_gradient), tolerance);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients)
    EXPECT_LE(distance(gradient, b.gradients.at(name)), tolerance) << name;
  ASSERT_EQ(a.states.size(), b.states.size());
  for (const auto& [name, state] : a.states) EXPECT_LE(distance(state, b.states.at(name)), tolerance) << name;
}

}  // namespace halfmark::models
