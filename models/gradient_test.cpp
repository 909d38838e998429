// Compares the gradients of every subject (parameters and input) with central finite differences in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr int kSamples = 6;          // elements tried in each tensor
constexpr double kStep = 0x1p-17;    // 7.6e-6, near the cube root of 2^-52, where truncation and cancellation balance
constexpr double kFlopsLimit = 2e7;  // per training step; a larger subject is covered by a smaller size of its family
constexpr int64_t kElementsLimit = 20000;

bool small(const Subject& subject) {
  if (subject.input.elements() > kElementsLimit) return false;
  TrialSpec spec = test_spec(subject.id(), "fp64");
  return Trial(spec.oracle(Inputs::drawn)).step_flops() <= kFlopsLimit;
}

class Gradients : public testing::TestWithParam<std::string> {};

// (f(v + h) - f(v - h)) / 2h. Its error is h^2 f'''/6 (truncation) plus the rounding error of f divided by h.
double difference(Trial& trial, Tensor& tensor, std::vector<double>& values, size_t i, double h) {
  const double centre = values[i];
  const auto at = [&](double value) {
    values[i] = value;
    tensor.set_values(values);
    trial.forward();
    return trial.loss();
  };
  const double up = at(centre + h), down = at(centre - h);
  at(centre);
  return (up - down) / (2 * h);
}

void compare(Trial& trial, const std::string& name, Tensor tensor, const std::vector<double>& gradient, RandomKey key) {
  std::vector<double> values = tensor.values();
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::fabs(value));
  ASSERT_GT(largest, 0) << name << ": a gradient of zeros proves nothing";
  const auto by_size = [](double a, double b) { return std::fabs(a) < std::fabs(b); };
  int rejected = 0, zeros = 0;
  const auto samples = std::min<size_t>(kSamples, values.size());
  for (size_t s = 0; s < samples; ++s) {
    // The first sample is the element with the largest gradient, so that the samples cannot all be zero.
    const size_t i =
        s == 0 ? static_cast<size_t>(std::max_element(gradient.begin(), gradient.end(), by_size) - gradient.begin())
               : static_cast<size_t>(key.below(s, values.size()));
    const double wide = difference(trial, tensor, values, i, 2 * kStep),
                 close = difference(trial, tensor, values, i, kStep);
    // The loss is a sum of terms of order one or less. Each rounds to about 2^-52; a hundred of them are allowed for.
    const double rounding =
        100 * std::numeric_limits<double>::epsilon() * std::max(std::fabs(trial.loss()), largest) / kStep;
    // The results of the two steps differ by three times the truncation error of the smaller step. A larger difference
    // means that a kink of relu or max pooling lies between the points, so the quotient is not a derivative.
    // Such a sample is rejected and counted.
    if (std::fabs(wide - close) > 1e-5 * largest + 2 * rounding) {
      ++rejected;
      continue;
    }
    zeros += gradient[i] == 0;
    const double tolerance = rounding + 2 * std::fabs(wide - close) + 1e-9 * largest;
    EXPECT_NEAR(gradient[i], close, tolerance) << name << " element " << i;
  }
  EXPECT_LE(2 * rejected, static_cast<int>(samples)) << name << ": too many samples lie at kinks";
  EXPECT_LT(zeros, static_cast<int>(samples)) << name;
}

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  const Subject& subject = subject_named(GetParam());
  if (!small(subject)) {
    for (const Subject& other : subjects())
      if (other.name == subject.name && small(other)) GTEST_SKIP() << "covered by " << other.id();
    FAIL() << subject.id() << " is too large and no smaller size of it exists";
  }
  Trial trial(test_spec(subject.id(), "fp64", 7).oracle(Inputs::drawn));
  trial.load_batch(0), trial.forward(), trial.backward();

  // All gradients are read before any value is changed.
  std::vector<std::vector<double>> gradients;
  for (const Param* param : trial.params()) gradients.push_back(trial.gradient(*param));
  const std::vector<double> dx = trial.input_gradient();
  const RandomKey key(11);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Param& param = *trial.params()[i];
    compare(trial, param.name, param.value, gradients[i], key.child(param.name));
  }
  compare(trial, "input", trial.input(), dx, key.child("input"));
}

std::vector<std::string> ids() {
  std::vector<std::string> ids;
  for (const Subject& subject : subjects()) ids.push_back(subject.id());
  return ids;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, Gradients, testing::ValuesIn(ids()), test_name);

}  // namespace
}  // namespace halfmark::models
