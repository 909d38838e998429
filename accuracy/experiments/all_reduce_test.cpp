// Tests of the all_reduce harness.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kReducedModel = "mlp/b2_i4_h6_o3";
constexpr double kReducedGradients = 4 * 6 + 6 + 6 * 6 + 6 + 6 * 3 + 3;

Findings reduced_under(const char* policy, Axes axes = {}) {
  return findings_of(all_reduce_harness(), experiment_trial(kReducedModel, policy, std::move(axes)));
}

TEST(AllReduce, OverflowsInFp16AndNotInFp32OrUnderAutocast) {
  for (const char* policy : {"fp16", "fp32", "amp-fp16", "bf16"}) {
    const TrialSpec spec = experiment_trial(kReducedModel, policy);
    const Findings found = findings_of(all_reduce_harness(), spec);
    EXPECT_TRUE(meets_expectation(all_reduce_harness(), spec, found)) << policy;
    for (const std::string order : {"/ring", "/tree"}) {
      EXPECT_EQ(number_at(found, "all_reduce.nonfinite", "policy" + order) > 0, std::string(policy) == "fp16")
          << policy << order;
      EXPECT_EQ(number_at(found, "all_reduce.nonfinite", "pre_divide" + order), 0) << policy << order;
      EXPECT_EQ(number_at(found, "all_reduce.nonfinite", "fp32" + order), 0) << policy << order;
    }
  }
}

// Small gradients: dividing first makes some zero, dividing the sum does not; the root of the ranks is between.
TEST(AllReduce, LosesSmallGradientsToADivisionBefore) {
  const Findings found = reduced_under("fp16", {{"scale", "0.0001"}});
  const double before = number_at(found, "all_reduce.zero", "pre_divide/ring"),
               split = number_at(found, "all_reduce.zero", "root_split/ring"),
               after = number_at(found, "all_reduce.zero", "post_divide/ring");
  EXPECT_GT(before, 0.1);
  EXPECT_LT(split, before);
  EXPECT_LE(after, split + 1 / kReducedGradients);
  EXPECT_EQ(number_at(found, "all_reduce.zero", "fp32/ring"), 0);
}

// Two samples leave some units of the hidden layers without a gradient. Such a mean is 0 in fp64 too, so no dtype lost it.
TEST(AllReduce, CountsNoZerosThatWereZero) {
  const TrialSpec spec = experiment_trial(kReducedModel, "fp32", {{"scale", "1"}});
  std::vector<double> sums;
  for (int64_t rank = 0; rank < 2; ++rank) {
    Trial trial(spec);
    trial.load_batch(rank), trial.forward(), trial.backward();
    size_t i = 0;
    for (const Param* param : trial.params())
      for (const double value : trial.gradient(*param)) {
        if (rank == 0) sums.push_back(0);
        sums[i++] += value;
      }
  }
  const auto zeros = std::ranges::count(sums, 0.0);
  EXPECT_GT(zeros, 0) << "else the test says nothing";
  const Findings found = findings_of(all_reduce_harness(), spec);
  for (const char* at : {"post_divide/ring", "post_divide/tree", "pre_divide/ring", "fp32/ring"})
    EXPECT_EQ(curve_at(found, "all_reduce.zero", at, 2), 0) << at << ": " << zeros << " zeros";
}

// A sum of n terms has at most n - 1 roundings of u relative to the sum of magnitudes; a tree has log2 n levels.
TEST(AllReduce, AddsAllRanksInBothOrders) {
  const Findings found = reduced_under("fp32", {{"scale", "1"}});
  for (const double ranks : {2.0, 64.0, 1024.0})
    for (const char* at : {"post_divide/ring", "post_divide/tree", "pre_divide/ring", "root_split/tree", "fp32/ring"})
      EXPECT_LT(curve_at(found, "all_reduce.error", at, ranks), ranks * 0x1p-24) << at << " " << ranks;
  const Findings half = reduced_under("fp16", {{"scale", "1"}});
  EXPECT_GT(number_at(half, "all_reduce.error", "post_divide/ring"),
            2 * number_at(half, "all_reduce.error", "post_divide/tree"))
      << "1,023 roundings one after another against ten";
}

// The same ring in plain loops: piece p of the gradients starts at rank p.
TEST(AllReduce, AddsARingPieceByPiece) {
  constexpr size_t kRanks = 8;
  const TrialSpec spec = experiment_trial(kReducedModel, "fp16", {{"scale", "1"}});
  Trial trial(spec);
  std::vector<std::vector<double>> gradients;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    trial.load_batch(static_cast<int64_t>(rank));
    trial.forward(), trial.backward();
    gradients.emplace_back();
    for (const Param* param : trial.params()) {
      const std::vector<double> own = trial.gradient(*param);
      gradients.back().insert(gradients.back().end(), own.begin(), own.end());
    }
  }
  const auto half = [](double x) { return round_to(kFp16, x); };
  const Findings found = findings_of(all_reduce_harness(), spec);
  for (const bool before : {true, false}) {
    double off = 0, size = 0;
    const size_t count = gradients[0].size();
    for (size_t i = 0; i < count; ++i) {
      const size_t first = i * kRanks / count;
      const auto sent = [&](size_t rank) {
        return before ? half(gradients[rank % kRanks][i] / kRanks) : gradients[rank % kRanks][i];
      };
      double sum = sent(first), exact = 0;
      for (size_t step = 1; step < kRanks; ++step) sum = half(sum + sent(first + step));
      for (const std::vector<double>& own : gradients) exact += own[i] / kRanks;
      const double mean = before ? sum : half(sum / kRanks);
      off += (mean - exact) * (mean - exact), size += exact * exact;
    }
    EXPECT_NEAR(curve_at(found, "all_reduce.error", before ? "pre_divide/ring" : "post_divide/ring", kRanks),
                std::sqrt(off / size), 1e-12)
        << before;
  }
}

TEST(AllReduce, CountsTheBytesOfARing) {
  const Findings found = reduced_under("amp-fp16");
  EXPECT_EQ(number_at(found, "all_reduce.gradients"), kReducedGradients);
  EXPECT_EQ(number_at(found, "all_reduce.batches"), 1024);
  EXPECT_EQ(curve_at(found, "all_reduce.bytes", "low", 4), 2 * 3.0 / 4 * kReducedGradients * 2);
  EXPECT_EQ(curve_at(found, "all_reduce.bytes", "policy", 4), 2 * 3.0 / 4 * kReducedGradients * 4)
      << "autocast delivers f32 gradients";
}

TEST(AllReduce, NeedsASmallModelWithLabels) {
  EXPECT_TRUE(refusal_of(all_reduce_harness(), experiment_trial("linear/b4_i16_o8", "fp16")));
  EXPECT_TRUE(refusal_of(all_reduce_harness(), experiment_trial("mlp/b128_i256_h1024_o10", "fp16")));
  EXPECT_TRUE(refusal_of(all_reduce_harness(), experiment_trial("mse/b8_o10", "fp16"))) << "no parameters";
}

}  // namespace
}  // namespace halfmark::accuracy
