// Tests of the mask harness: which masks give NaN follows from where the sums overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kMaskedScores = "softmax/b32_d64";

Findings masked_under(const char* policy, Axes axes = {}) {
  return findings_of(mask_harness(), experiment_trial(kMaskedScores, policy, std::move(axes)));
}

TEST(Mask, WithTheLowestNumberFailsInFp16AndNotInFp32UnderAutocastOrInBf16) {
  for (const char* policy : {"fp16", "fp32", "amp-fp16", "bf16"}) {
    const TrialSpec spec = experiment_trial(kMaskedScores, policy);
    const Findings found = findings_of(mask_harness(), spec);
    EXPECT_TRUE(meets_expectation(mask_harness(), spec, found)) << policy;
    EXPECT_EQ(number_at(found, "mask.nan", "lowest/one") > 0, std::string(policy) == "fp16") << policy;
  }
}

// Of a row that is masked altogether. fp16: -1e9 is -infinity; -65504 - 20 overflows; two lowest numbers overflow in every format.
TEST(Mask, MakesNanWhereEveryPlaceIsMinusInfinity) {
  struct Row {
    const char* at;
    bool fp16, wide;  // NaN
  };
  const std::map<std::string, Findings> found = {{"fp16", masked_under("fp16")},
                                                 {"fp32", masked_under("fp32")},
                                                 {"amp-fp16", masked_under("amp-fp16")},
                                                 {"bf16", masked_under("bf16")}};
  for (const Row& row : {Row{"-1e4/one", false, false}, Row{"-1e4/two", false, false}, Row{"-1e9/one", true, false},
                         Row{"-1e9/two", true, false}, Row{"lowest/one", true, false}, Row{"lowest/two", true, true},
                         Row{"-inf/one", true, true}, Row{"-inf/two", true, true}, Row{"boolean/one", false, false},
                         Row{"boolean/two", false, false}})
    for (const auto& [policy, numbers] : found) {
      EXPECT_EQ(std::isnan(number_at(numbers, "mask.full_low_row", row.at)), policy == "fp16" ? row.fp16 : row.wide)
          << policy << " " << row.at;
      EXPECT_EQ(number_at(numbers, "mask.nan_partial_rows", row.at), 0) << policy << " " << row.at;
    }
  EXPECT_EQ(number_at(found.at("fp16"), "mask.value", "-1e9"), -HUGE_VAL);
  EXPECT_EQ(number_at(found.at("fp16"), "mask.value", "-1e4"), -10000);
  EXPECT_EQ(number_at(found.at("fp16"), "mask.value", "lowest"), -65504);
  EXPECT_EQ(number_at(found.at("amp-fp16"), "mask.value", "-1e9"), -1e9) << "the mask has the dtype of the parameters";
}

TEST(Mask, OfBytesGivesNothingToARowThatIsMaskedAltogether) {
  for (const char* policy : {"fp16", "fp32", "bf16"}) {
    const Findings found = masked_under(policy);
    EXPECT_EQ(number_at(found, "mask.full_row", "boolean/one"), 0) << policy;
    // What a finite constant masks altogether attends to the masked places.
    EXPECT_NEAR(number_at(found, "mask.full_row", "-1e4/one"), 1, 64 * 0x1p-8) << policy;
  }
}

// Scores with a standard deviation of 10,000: -1e4 does not hide a masked score of 15,000.
TEST(Mask, OfASmallConstantLeaksForLargeScores) {
  const Findings large = masked_under("fp16", {{"scores", "10000"}}), usual = masked_under("fp16");
  EXPECT_GT(number_at(large, "mask.leaked", "-1e4/one"), 0.5);
  EXPECT_LT(number_at(large, "mask.leaked", "-1e4/one"), 1.01) << "of one row, whose sum is 1";
  EXPECT_EQ(number_at(usual, "mask.leaked", "-1e4/one"), 0);
  for (const char* at : {"-1e9/one", "-inf/one", "boolean/one"})
    EXPECT_EQ(number_at(large, "mask.leaked", at), 0) << at;
}

TEST(Mask, LeavesTheOtherPlacesAsExactAsTheFormat) {
  for (const auto& [policy, unit] : {std::pair{"fp16", 0x1p-11}, std::pair{"fp32", 0x1p-21}, std::pair{"bf16", 0x1p-8}})
    for (const char* at : {"-1e9/one", "-inf/one", "boolean/one"})
      EXPECT_LE(number_at(masked_under(policy), "mask.error", at), unit) << policy << " " << at;
}

TEST(Mask, NeedsASoftmaxOfSomeRows) {
  EXPECT_TRUE(refusal_of(mask_harness(), experiment_trial("linear/b4_i16_o8", "fp16")));
  EXPECT_TRUE(refusal_of(mask_harness(), experiment_trial("softmax/b2_d8", "fp16")));
  EXPECT_FALSE(refusal_of(mask_harness(), experiment_trial(kMaskedScores, "fp16")));
}

TEST(Mask, MeasuresTheSameOnASimulatedGpu) {
  const Findings cpu = masked_under("fp16"),
                 sim = findings_of(mask_harness(), experiment_trial(kMaskedScores, "fp16", {}, "sim:hopper"));
  for (const char* at : {"-1e9/one", "lowest/one", "lowest/two", "boolean/one"})
    EXPECT_EQ(number_at(cpu, "mask.nan", at), number_at(sim, "mask.nan", at)) << at;
}

}  // namespace
}  // namespace halfmark::accuracy
