// Trainings with fewer fraction bits: exact controls, and the effects of few bits that are known.
#include "accuracy/experiments/mantissa_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kBitsMlp = "mlp/b8_i16_h24_o10";
constexpr Format kBits10{"e8m10", 8, 10}, kBits3{"e8m3", 8, 3};

TEST(MantissaTraining, With23BitsIsTheTrainingOfFp32BitForBit) {
  for (const char* subject : {kBitsMlp, "convnet/b4_c1_s8_w4", "gpt/b2_t8_n1_h2_d8_v27"}) {
    const TrialSpec spec = experiment_spec(subject, "fp32");
    const experiment_testing::OneThread one_thread;
    const double plain = loss_with_bits(spec, TrainedBits::passes, nullptr, 4, 32);
    for (const TrainedBits mode : {TrainedBits::passes, TrainedBits::weights}) {
      EXPECT_EQ(loss_with_bits(spec, mode, &kFp32, 4, 32), plain) << subject << " " << name_of(mode);
      EXPECT_NE(loss_with_bits(spec, mode, &kBits10, 4, 32), plain) << subject << ": the control can fail";
    }
  }
}

// At a small rate an update is below half a step of a weight of 3 bits: rounded weights do not move, fp32 weights learn.
TEST(MantissaTraining, LearnsNothingWhereWeightsAreRoundedToFewBits) {
  TrialSpec spec = experiment_spec(kBitsMlp, "fp32");
  spec.settings.rate = 0.1, spec.settings.momentum = 0;
  const experiment_testing::OneThread one_thread;
  const auto loss = [&](TrainedBits mode, const Format* format, int64_t steps) {
    return loss_with_bits(spec, mode, format, steps, 256);
  };
  const double wide = loss(TrainedBits::passes, nullptr, 200), start = loss(TrainedBits::passes, nullptr, 0);
  ASSERT_GT(start - wide, 0.5);
  EXPECT_LT(loss(TrainedBits::passes, &kBits3, 200) - wide, 0.2 * (start - wide));
  EXPECT_GT(loss(TrainedBits::weights, &kBits3, 200) - wide, 0.5 * (start - wide));
}

TEST(MantissaTraining, IsJudgedOverTheSeedsAndFindsTheFewestBits) {
  const TrialSpec spec = experiment_spec(kBitsMlp, "fp32", {{"part", "training"}, {"seeds", "3"}, {"steps", "40"}});
  const Findings found = findings_of(mantissa_harness(), spec);
  EXPECT_TRUE(experiment_testing::meets_expectation(mantissa_harness(), spec, found));
  EXPECT_EQ(number_at(found, "mantissa.trained_control"), 1);
  EXPECT_EQ(measured(found, "mantissa.trained_fp32_loss").samples.size(), 3u);
  for (const char* mode : {"passes", "weights"}) {
    const Series& judged = whole_curve(found, "mantissa.trained_as_fp32", mode);
    ASSERT_EQ(judged.x.size(), 8u);
    EXPECT_EQ(judged.x.front(), 23);
    EXPECT_EQ(judged.y.front(), 1);
    double least = HUGE_VAL;
    for (size_t i = 0; i < judged.x.size() && judged.y[i] == 1; ++i) least = judged.x[i];
    EXPECT_EQ(number_at(found, "mantissa.trained_least_bits", mode), least) << mode;
  }
  EXPECT_LE(number_at(found, "mantissa.trained_least_bits", "passes"),
            number_at(found, "mantissa.trained_least_bits", "weights"));
}

TEST(MantissaTraining, NeedsLabelsAndFp32) {
  const auto refused = [](const char* subject, const char* policy, const Axes& axes) {
    return refusal_of(mantissa_harness(), experiment_spec(subject, policy, axes)).value_or("");
  };
  EXPECT_NE(refused("linear/b16_i64_o32", "fp32", {{"part", "training"}}).find("has no labels"), std::string::npos);
  EXPECT_NE(refused(kBitsMlp, "fp16", {{"part", "training"}}).find("has to be fp32"), std::string::npos);
  EXPECT_NE(refused("linear/b16_i64_o32", "fp32", {{"seeds", "3"}}).find("has no axis seeds"), std::string::npos);
  EXPECT_EQ(refused(kBitsMlp, "fp32", {{"part", "training"}, {"seeds", "3"}}), "");
}

}  // namespace
}  // namespace halfmark::accuracy
