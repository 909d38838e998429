// The harness batch_invariance: comparisons with planted differences, and divergences against theory.
#include "accuracy/experiments/batch_invariance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kText = "gpt/b2_t8_n1_h2_d8_v27";

TEST(SampleInBatch, SeesOneBitOfOneOutputOfTheRightSample) {
  const std::vector<double> alone = {3, 4};  // rms sqrt(12.5)
  std::vector<double> together = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(sample_in_batch(together, 3, 1, alone).equal, 2);
  EXPECT_EQ(sample_in_batch(together, 3, 1, alone).difference, 0);
  EXPECT_EQ(sample_in_batch(together, 3, 0, alone).equal, 0) << "another sample";
  together[3] = std::nextafter(4.0, 5.0);
  EXPECT_EQ(sample_in_batch(together, 3, 1, alone).equal, 1);
  EXPECT_NEAR(sample_in_batch(together, 3, 1, alone).difference, 0x1p-50 / std::sqrt(12.5), 0x1p-60);
  together[2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sample_in_batch(together, 3, 1, alone).difference));
}

// p = (0.25, 0.75), q = (0.5, 0.5): 0.25 log 0.5 + 0.75 log 1.5. A constant added to all logits changes nothing.
TEST(SoftmaxDivergence, IsTheOneByHand) {
  const std::vector<double> a = {100, 100 + std::log(3.0)}, b = {-7, -7};
  EXPECT_NEAR(softmax_divergence(a.data(), b.data(), 2), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-12);
  EXPECT_EQ(softmax_divergence(a.data(), a.data(), 2), 0);
  const std::vector<double> infinite = {1, std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(std::isnan(softmax_divergence(a.data(), infinite.data(), 2)));
}

TEST(BatchInvariance, ComparesEverySizeRunAndPosition) {
  const Findings findings = findings_of(batch_invariance_harness(), experiment_spec(kText, "fp32", {{"batch", "8"}}));
  EXPECT_EQ(whole_curve(findings, "invariance.batch_equal").x, (std::vector<double>{2, 4, 8}));
  // 2 + 3 + 3 samples of 8 positions and 27 logits.
  EXPECT_EQ(number_at(findings, "invariance.outputs"), (2 + 3 + 3) * 8 * 27);
  EXPECT_EQ(number_at(findings, "invariance.run_equal", "inference"), 1);
  EXPECT_EQ(number_at(findings, "invariance.run_equal", "training"), 1);
  EXPECT_EQ(number_at(findings, "invariance.decode_positions"), 8);
  // Other kernels for other shapes may sum in another order: fp32 sums of at most 32 terms through a dozen layers.
  EXPECT_LT(number_at(findings, "invariance.batch_difference"), 1e-4);
  EXPECT_LT(number_at(findings, "invariance.decode_difference"), 1e-4);
}

// A text model that looks ahead is not causal: the logits of a text so far differ from those of the whole text.
TEST(BatchInvariance, DecodingFindsAModelThatLooksAhead) {
  TrialSpec spec = experiment_spec(kText, "fp32", {{"batch", "2"}});
  Network network = *spec.subject->network;
  const std::function<void(std::vector<LayerSpec>&)> look_ahead = [&](std::vector<LayerSpec>& layers) {
    for (LayerSpec& layer : layers) {
      if (layer.kind == "self_attention") layer.arguments["causal"] = false;
      for (auto& branch : layer.branches) look_ahead(branch);
    }
  };
  look_ahead(network.layers);
  Subject subject = subject_of_network(spec.subject->input, spec.subject->data, spec.subject->classes, network);
  subject.name = "ahead", subject.sizes = "b2", subject.loss = spec.subject->loss;
  spec.subject = &subject;
  const Findings findings = findings_of(batch_invariance_harness(), spec);
  EXPECT_LT(number_at(findings, "invariance.decode_equal"), 0.5);
  EXPECT_GT(number_at(findings, "invariance.decode_difference"), 1e-3);
  EXPECT_GT(number_at(findings, "invariance.kl", "decode"), 0);
}

// Rounding errors are proportional to the unit roundoff and the divergence to their square: 2^-8 against 2^-11 gives 64.
TEST(BatchInvariance, TheDivergenceOfBf16Is64TimesThatOfFp16) {
  const auto divergence = [](const char* policy) {
    return number_at(
        findings_of(batch_invariance_harness(), experiment_spec("gpt/b8_t32_n2_h2_d32_v27", policy, {{"batch", "2"}})),
        "invariance.kl", "split_k_low");
  };
  const double ratio = divergence("bf16") / divergence("fp16");
  EXPECT_GT(ratio, 64 / 2.5);
  EXPECT_LT(ratio, 64 * 2.5);
}

TEST(BatchInvariance, AnotherOrderOfSummationIsSeen) {
  const Findings findings =
      findings_of(batch_invariance_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp16", {{"batch", "2"}}));
  EXPECT_GT(number_at(findings, "invariance.kl", "split_k_low"), 0);
  EXPECT_FALSE(has_number(findings, "invariance.kl", "decode")) << "the samples of an mlp are not texts";
}

}  // namespace
}  // namespace halfmark::accuracy
