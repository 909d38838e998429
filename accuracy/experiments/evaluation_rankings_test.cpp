// The parts conclusions and int8 of the harness evaluation: exact probabilities, codes by hand, negative controls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/int8_weights.h"
#include "accuracy/experiments/whole_models_testing.h"
#include "models/batch_source.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kRankedMlp = "mlp/b8_i16_h24_o10";

std::vector<double> seeds_of(size_t wrong, size_t count) {
  std::vector<double> seeds(count, 0);
  for (size_t i = 0; i < wrong; ++i) seeds[i] = 1;
  return seeds;
}

// Binomial tails: of n seeds that differ, all are wrong by chance with 2^-n; 3 or 4 of 4 with 5/16.
TEST(MoreOftenByChance, IsTheTailOfTheBinomialDistribution) {
  EXPECT_EQ(more_often_by_chance(seeds_of(5, 20), seeds_of(0, 20)), 1 / 32.0);
  EXPECT_EQ(more_often_by_chance(seeds_of(5, 20), seeds_of(5, 20)), 1) << "no seed differs";
  EXPECT_EQ(more_often_by_chance(seeds_of(0, 20), seeds_of(5, 20)), 1) << "fp32 is wrong more often";
  EXPECT_EQ(more_often_by_chance(std::vector<double>{1, 1, 1, 0, 0}, std::vector<double>{0, 0, 0, 1, 0}), 5 / 16.0);
  EXPECT_EQ(more_often_by_chance(seeds_of(20, 20), seeds_of(0, 20)), 0x1p-20);
}

Findings conclusions_of(const char* policy, double rate, const OptimizerKind optimizer = OptimizerKind::sgd) {
  TrialSpec spec = experiment_spec(kRankedMlp, policy,
                                   {{"part", "conclusions"}, {"seeds", "20"}, {"steps", "10"}, {"samples", "32"}});
  spec.settings.rate = rate, spec.settings.optimizer.kind = optimizer;
  return findings_of(evaluation_harness(), spec);
}

// At a rate that is too small for a training to end, half of it is worse in every seed, in fp32 and in fp16.
TEST(Conclusions, OfAClearGapAreThoseOfFp32) {
  const Findings found = conclusions_of("fp16", 1e-2);
  const Measurement& gap = measured(found, "evaluation.conclusion_gap", "2^-1");
  EXPECT_GT(gap.value, 5 * gap.standard_error.value());
  for (const char* way : {"fp32", "evaluated", "trained"})
    EXPECT_EQ(number_at(found, "evaluation.conclusion_wrong", way + std::string("/2^-1")), 0) << way;
  EXPECT_EQ(number_at(found, "evaluation.conclusion_chance", "trained"), 1);
  EXPECT_EQ(measured(found, "evaluation.conclusion_wrong", "trained/2^-1").samples.size(), 20u);
}

// Adam's state in fp16 makes every training diverge: no seed can rank two models. AMP, with the same optimizer, can.
TEST(Conclusions, AreWrongWhereTheTrainingFailsAndThereAlone) {
  const Findings pure = conclusions_of("fp16", 1e-3, OptimizerKind::adam),
                 amp = conclusions_of("amp-fp16", 1e-3, OptimizerKind::adam);
  EXPECT_EQ(number_at(pure, "evaluation.conclusion_wrong", "trained/2^-1"), 1);
  EXPECT_LT(number_at(pure, "evaluation.conclusion_chance", "trained"), 1e-3);
  // The least of three chances, times three: Bonferroni.
  double least = 1;
  for (const char* rates : {"trained/2^-1", "trained/2^-1/4", "trained/2^-1/16"})
    least = std::min(least, number_at(pure, "evaluation.conclusion_chance", rates));
  EXPECT_EQ(number_at(pure, "evaluation.conclusion_chance", "trained"), 3 * least);
  EXPECT_EQ(number_at(pure, "evaluation.conclusion_wrong", "evaluated/2^-1"), 0) << "those trained in fp32 are good";
  EXPECT_GT(number_at(amp, "evaluation.conclusion_chance", "trained"), 0.05);
}

TEST(Conclusions, OfFp32HaveNoTrainingUnderThePolicy) {
  const Findings found = conclusions_of("fp32", 1e-2);
  EXPECT_FALSE(has_number(found, "evaluation.conclusion_chance", "trained"));
  EXPECT_TRUE(has_number(found, "evaluation.conclusion_chance", "evaluated"));
}

// Channel 1 has the largest magnitude 1.27, so the scale 0.01; channel 2 the scale 1; one of zeros stays.
TEST(Int8Weights, HaveOneScaleForEachChannel) {
  const std::vector<double> left =
      with_int8_values(std::vector<double>{1.27, 0.014, -0.006, 127, -3.4, 0.2, 0, 0, 0}, 3);
  const double step = static_cast<float>(0.01);
  const std::vector<double> expected = {127 * step, step, -step, 127, -3, 0, 0, 0, 0};
  ASSERT_EQ(left.size(), expected.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_NEAR(left[i], expected[i], 1e-9) << i;
  // With one scale for all, the first channel is below half a step.
  EXPECT_EQ(with_int8_values(std::vector<double>{0.3, 0.4, 127, 1}, 1), (std::vector<double>{0, 0, 127, 1}));
  EXPECT_THROW(with_int8_values(std::vector<double>{1, 2, 3}, 2), Error);
  EXPECT_THROW(with_int8_values(std::vector<double>{1, std::numeric_limits<double>::infinity()}, 1), Error);
}

TEST(Int8Weights, CostMoreAccuracyThanHalfAndFewerBytes) {
  const Findings found = findings_of(
      evaluation_harness(),
      experiment_spec(kRankedMlp, "fp32", {{"part", "int8"}, {"seeds", "3"}, {"steps", "40"}, {"samples", "256"}}));
  const auto error = [&](const char* at) { return number_at(found, "evaluation.weights_logit_error", at); };
  EXPECT_GT(error("int8"), 4 * error("full_fp16"));
  EXPECT_GT(error("int8_tensor"), error("int8")) << "control: one scale is coarser than one for each channel";
  // The step of a channel is at most its largest weight / 127, which is some times its rms.
  EXPECT_LT(error("int8"), 0.05);
  const double numbers = number_at(found, "evaluation.weights_bytes", "full_fp16") / 2;
  const double floats = number_at(found, "evaluation.weights_floats", "int8") * numbers;
  EXPECT_EQ(floats, 24 + 24 + 10) << "biases";
  // One byte for each weight, four for each bias and for the scale of each output.
  EXPECT_EQ(number_at(found, "evaluation.weights_bytes", "int8"), numbers - floats + 4 * floats + 4 * (24 + 24 + 10));
  EXPECT_EQ(number_at(found, "evaluation.weights_bytes", "int8_tensor"), numbers - floats + 4 * floats + 4 * 3);
  EXPECT_EQ(number_at(found, "evaluation.weights_floats", "full_fp16"), 1);
}

// x W^T + b, with one sample per row.
std::vector<double> layer_in_loops(const std::vector<double>& x, const std::vector<double>& weight,
                                   const std::vector<double>& bias) {
  const size_t outputs = bias.size(), inputs = weight.size() / outputs, samples = x.size() / inputs;
  std::vector<double> y;
  for (size_t s = 0; s < samples; ++s)
    for (size_t o = 0; o < outputs; ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < inputs; ++i) sum += x[s * inputs + i] * weight[o * inputs + i];
      y.push_back(sum);
    }
  return y;
}

// The error of the logits again, in plain loops of fp64: three layers with ReLU between, whose weights are whole multiples of
// (largest of the output's row or of all) / 127.
TEST(Int8Weights, HaveTheErrorsOfPlainLoops) {
  constexpr int64_t kSteps = 40, kSamples = 256;
  const TrialSpec given =
      experiment_spec(kRankedMlp, "fp32", {{"part", "int8"}, {"seeds", "2"}, {"steps", "40"}, {"samples", "256"}});
  const Findings found = findings_of(evaluation_harness(), given);
  for (const auto& [at, of_rows] : {std::pair{"int8", true}, {"int8_tensor", false}}) {
    std::vector<double> errors;
    for (uint64_t seed = 0; seed < 2; ++seed) {
      TrialSpec spec = given;
      spec.seed += seed;
      Trial trial(spec);
      for (int64_t step = 0; step < kSteps; ++step) trial.train_step(step);
      std::vector<std::vector<double>> params;  // weight and bias in turn
      for (const Param* param : trial.params()) params.push_back(param->value.values());
      ASSERT_EQ(params.size(), 6u);
      std::vector<double> exact = BatchSource(spec, *spec.policy).held_out(kSamples).batches.at(0).x, seen = exact;
      for (size_t layer = 0; layer < 3; ++layer) {
        const std::vector<double>&weight = params[2 * layer], &bias = params[2 * layer + 1];
        std::vector<double> whole = weight;
        const size_t width = of_rows ? weight.size() / bias.size() : weight.size();
        for (size_t first = 0; first < whole.size(); first += width) {
          double largest = 0;
          for (size_t i = first; i < first + width; ++i) largest = std::max(largest, std::fabs(weight[i]));
          for (size_t i = first; i < first + width; ++i)
            whole[i] = std::round(weight[i] / (largest / 127)) * (largest / 127);
        }
        exact = layer_in_loops(exact, weight, bias), seen = layer_in_loops(seen, whole, bias);
        if (layer == 2) break;
        for (std::vector<double>* values : {&exact, &seen})
          for (double& value : *values) value = std::max(value, 0.0);
      }
      double off = 0, size = 0;
      for (size_t i = 0; i < exact.size(); ++i)
        off += (seen[i] - exact[i]) * (seen[i] - exact[i]), size += exact[i] * exact[i];
      errors.push_back(std::sqrt(off / size));
    }
    const Measurement& error = measured(found, "evaluation.weights_logit_error", at);
    ASSERT_EQ(error.samples.size(), 2u);
    for (size_t seed = 0; seed < 2; ++seed) EXPECT_NEAR(error.samples[seed], errors[seed], 1e-3 * errors[seed]) << at;
    EXPECT_NEAR(error.value, (errors[0] + errors[1]) / 2, 1e-3 * error.value) << at;
    ASSERT_TRUE(error.standard_error);
    EXPECT_NEAR(*error.standard_error, std::fabs(errors[0] - errors[1]) / 2, 2e-3 * error.value) << "of two seeds";
  }
}

}  // namespace
}  // namespace halfmark::accuracy
