// The harness overflow: when numbers double by growing weights, and controls that never overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

Findings overflow_of(const char* policy, Axes axes) {
  return findings_of(overflow_harness(), experiment_spec("mlp/b8_i16_h24_o10", policy, std::move(axes)));
}

// Logits grow as the weights of three layers do, biases apart: from 2^15 to 2^16 in log(2) / (3 log 1.01) = 23 steps if all
// three count, in 70 if one does. Batches differ, by a factor of 2 at most: as many steps again.
TEST(Overflow, AWarningComesOneDoublingEarlier) {
  const Findings findings = overflow_of("fp16", {{"growth", "1.01"}, {"steps", "1000"}});
  const double warning = number_at(findings, "overflow.first_warning", "activations"),
               first = number_at(findings, "overflow.first_nonfinite", "activations");
  ASSERT_TRUE(std::isfinite(first));
  EXPECT_EQ(number_at(findings, "overflow.lead", "activations"), first - warning);
  EXPECT_GE(first - warning, 5);
  EXPECT_LE(first - warning, 140);
  EXPECT_EQ(number_at(findings, "overflow.steps"), first + 1);
  const Series& headroom = whole_curve(findings, "overflow.headroom");
  const Series& largest = whole_curve(findings, "overflow.largest");
  ASSERT_EQ(headroom.y.size(), largest.y.size());
  EXPECT_NEAR(headroom.y.front(), std::log2(65504 / largest.y.front()), 1e-9);
  EXPECT_GT(headroom.y.front(), 8);
  EXPECT_EQ(headroom.x.back(), first);
  EXPECT_TRUE(std::isinf(largest.y.back()));
}

TEST(Overflow, NamesTheFirstTensor) {
  const Findings findings = overflow_of("fp16", {{"growth", "1.01"}, {"steps", "1000"}});
  int named = 0;
  for (const Measurement& one : findings.measurements)
    if (one.metric == "overflow.overflowed_at" && one.at.starts_with("activations/")) {
      ++named;
      EXPECT_EQ(one.value, number_at(findings, "overflow.first_nonfinite", "activations"));
    }
  EXPECT_EQ(named, 1);
}

TEST(Overflow, DoesNotHappenInBf16NorWithoutGrowth) {
  const Findings bf16 = overflow_of("bf16", {{"growth", "1.01"}, {"steps", "700"}});
  EXPECT_TRUE(std::isfinite(number_at(bf16, "overflow.first_warning", "activations"))) << "its numbers are as large";
  EXPECT_TRUE(std::isinf(number_at(bf16, "overflow.first_nonfinite", "activations")));
  const Findings still = overflow_of("fp16", {{"growth", "1"}, {"steps", "20"}});
  EXPECT_TRUE(std::isinf(number_at(still, "overflow.first_warning", "activations")));
  EXPECT_EQ(number_at(still, "overflow.steps"), 20);
}

}  // namespace
}  // namespace halfmark::accuracy
