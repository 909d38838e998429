// Shared by the tests of models/: a device, trial specs, norms, and ids of subjects.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "models/namespaces.h"
#include "models/trial.h"

namespace halfmark::models {

inline std::shared_ptr<Device> test_device() {
  static const std::shared_ptr<Device> device = open_device("cpu");
  return device;
}

inline TrialSpec test_spec(const std::string& subject, std::string_view policy, uint64_t seed = 1) {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = test_device();
  spec.policy = &policy_named(policy);
  spec.seed = seed;
  return spec;
}

// Of all parameters and running statistics.
inline std::vector<std::vector<unsigned char>> codes_of(Trial& trial) {
  std::vector<std::vector<unsigned char>> codes;
  for (const Param* param : trial.params()) codes.push_back(param->value.codes());
  for (const State* state : trial.states()) codes.push_back(state->value.codes());
  return codes;
}

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// |a - b| / |b|
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm(difference) / norm(b);
}

inline constexpr const char* kSmallMlp = "mlp/b8_i16_h24_o10";
inline constexpr const char* kMlp = "mlp/b32_i64_h128_o10";
inline constexpr const char* kSmallConvnet = "convnet/b4_c1_s8_w4";
inline constexpr const char* kConvnet = "convnet/b16_c3_s16_w16";

}  // namespace halfmark::models
