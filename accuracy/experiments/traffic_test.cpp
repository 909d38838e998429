// Bytes of the operands of a training step, by hand.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

Findings traffic_under(std::string_view subject, std::string_view policy) {
  return findings_of(traffic_harness(), experiment_trial(subject, policy));
}

TEST(Traffic, OfAProductIsThatOfItsMatrices) {
  for (const auto& [policy, bytes] : {std::pair{"fp32", 4}, {"fp16", 2}, {"amp-fp16", 2}}) {
    const Findings found = traffic_under("linear/b4_i16_o8", policy);
    EXPECT_EQ(number_at(found, "traffic.read", "forward/matmul"), bytes * (4 * 16 + 16 * 8)) << policy;
    EXPECT_EQ(number_at(found, "traffic.written", "forward/matmul"), bytes * 4 * 8) << policy;
    // dx = dy w and dw = dy^T x
    EXPECT_EQ(number_at(found, "traffic.read", "backward/matmul"), bytes * (4 * 8 + 16 * 8 + 4 * 8 + 4 * 16)) << policy;
    EXPECT_EQ(number_at(found, "traffic.written", "backward/matmul"), bytes * (4 * 16 + 16 * 8)) << policy;
  }
}

TEST(Traffic, IsTheSumOfItsPhasesAndOfTheirOperations) {
  const Findings found = traffic_under("convnet/b16_c3_s16_w16", "amp-bf16");
  double of_phases = 0, of_operations = 0;
  for (const Measurement& one : found.measurements) {
    if (one.metric != "traffic.read" || one.at.empty()) continue;
    (one.at.find('/') == std::string::npos ? of_phases : of_operations) += one.value;
  }
  double casts = 0;
  for (const Measurement& one : found.measurements)
    if (one.metric != "traffic.ratio" && one.at.ends_with("/cast")) casts += one.value;
  EXPECT_GT(casts, 0);
  EXPECT_EQ(number_at(found, "traffic.casts"),
            casts / (number_at(found, "traffic.read") + number_at(found, "traffic.written")));
  EXPECT_EQ(of_phases, number_at(found, "traffic.read"));
  EXPECT_EQ(of_operations, number_at(found, "traffic.read"));
}

TEST(Traffic, IsHalvedInPureHalfButNotUnderAutocast) {
  for (const std::string_view policy : {"fp32", "fp16", "amp-fp16"}) {
    for (const std::string_view subject : {"convnet/b16_c3_s16_w16", "mlp/b32_i64_h128_o10"}) {
      const Findings found = traffic_under(subject, policy);
      const double ratio = number_at(found, "traffic.ratio");
      if (policy == "fp32") {
        EXPECT_EQ(ratio, 1);
      } else if (policy == "fp16") {
        // Labels and statistics are not halved. The casts by which a row of the CPU widens its operands are not the policy's.
        EXPECT_NEAR(ratio, 0.5, 0.005);
      } else {
        EXPECT_GT(ratio, 0.55) << "parameters, the statistics of batch norm and casts";
      }
      EXPECT_EQ(number_at(found, "traffic.casts") > 0, policy == "amp-fp16") << policy;
    }
  }
}

TEST(Traffic, OfAnOptimizerWithMasterWeightsIsThatOfFp32AndACopy) {
  const Findings fp32 = traffic_under("mlp/b32_i64_h128_o10", "fp32"),
                 master = traffic_under("mlp/b32_i64_h128_o10", "fp16-master");
  // Each writes parameter and velocity in fp32; with master weights also the fp16 copy.
  EXPECT_GT(number_at(master, "traffic.written", "optimizer/sgd_step"),
            number_at(fp32, "traffic.written", "optimizer/sgd_step"));
}

}  // namespace
}  // namespace halfmark::accuracy
