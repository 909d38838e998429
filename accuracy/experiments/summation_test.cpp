// The summation experiment on simulated tensor cores, whose blocks are known, and on a split K.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

Findings summation_of(std::string_view subject, std::string_view policy, const std::string& device) {
  return findings_of(summation_harness(), experiment_trial(subject, policy, {}, device));
}

TEST(Summation, FindsTheBlocksOfTensorCores) {
  for (const auto& [device, block, bits] :
       {std::tuple{"sim:volta", 4, 23}, {"sim:ampere", 8, 24}, {"sim:hopper", 16, 25}}) {
    const Findings found = summation_of("linear/b16_i64_o16", "amp-fp16", device);
    EXPECT_EQ(number_at(found, "summation.described"), 1) << device;
    EXPECT_EQ(number_at(found, "summation.products_per_block"), block) << device;
    EXPECT_EQ(number_at(found, "summation.kept_bits"), bits) << device;
    EXPECT_EQ(number_at(found, "summation.partial_sums"), 1) << device;
    EXPECT_EQ(number_at(found, "summation.elements_alike"), 1) << device;
  }
}

TEST(Summation, TheFingerprintIsThatOfTheWayOfAdding) {
  const auto fingerprint = [](std::string_view subject, const std::string& device) {
    return number_at(summation_of(subject, "amp-fp16", device), "summation.fingerprint");
  };
  const double hopper = fingerprint("linear/b16_i64_o16", "sim:hopper");
  EXPECT_EQ(hopper, fingerprint("linear/b16_i64_o16", "sim:hopper"));
  EXPECT_EQ(hopper, fingerprint("linear/b32_i64_o16", "sim:hopper"));  // m does not matter to the simulation
  EXPECT_NE(hopper, fingerprint("linear/b16_i64_o16", "sim:ampere"));
  EXPECT_NE(hopper, fingerprint("linear/b16_i128_o16", "sim:hopper"));
}

TEST(Summation, FindsTheChainOfTheReferenceRows) {
  const Findings found = summation_of("linear/b4_i16_o8", "fp32", "sim:hopper");
  EXPECT_EQ(number_at(found, "summation.products_per_block"), 1);
}

TEST(Summation, RefusesWhatIsNoMatmulOfNumbersAsStored) {
  const auto refusal = [](std::string_view subject, std::string_view policy) {
    return refusal_of(summation_harness(), experiment_trial(subject, policy)).value_or("");
  };
  EXPECT_NE(refusal("relu/b16_c64_s8", "fp32").find("needs a linear layer"), std::string::npos);
  EXPECT_NE(refusal("linear/b4_i16_o8", "mxfp8").find("quantises them"), std::string::npos);
  EXPECT_NE(refusal("linear/b4_i1_o8", "fp32").find("needs two products"), std::string::npos);
}

}  // namespace
}  // namespace halfmark::accuracy
