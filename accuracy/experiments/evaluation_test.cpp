// The harness evaluation: comparisons on numbers by hand, and each part on small models with its negative control.
#include "accuracy/experiments/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kTinyMlp = "mlp/b8_i16_h24_o10";
constexpr const char* kTinyConvnet = "convnet/b4_c1_s8_w4";

Answers answers_of(std::vector<double> values, const Shape& shape, std::vector<double> labels = {}) {
  return {.inputs = {shape}, .outputs = {shape}, .values = {std::move(values)}, .labels = {std::move(labels)}};
}

TEST(CompareAnswers, CountsFlipsAndTheErrorRelativeToTheAnswers) {
  const Shape two{2, 2};
  const Answers exact = answers_of({3, 0, 0, 4}, two);  // rms 2.5
  const AnswerErrors same = compare_answers(DataKind::images, exact, exact);
  EXPECT_EQ(same.flips, 0);
  EXPECT_EQ(same.rms, 0);
  EXPECT_EQ(same.predictions, 2);
  const AnswerErrors one = compare_answers(DataKind::images, answers_of({3, 0, 5, 4}, two), exact);
  EXPECT_EQ(one.flips, 1);
  EXPECT_NEAR(one.max, 5 / 2.5, 1e-12);
  EXPECT_NEAR(one.rms, 2.5 / 2.5, 1e-12);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const AnswerErrors broken = compare_answers(DataKind::images, answers_of({nan, 0, 0, 40}, two), exact);
  EXPECT_EQ(broken.flips, 1);
  EXPECT_EQ(broken.nonfinite, 0.25);
  EXPECT_TRUE(std::isnan(broken.max)) << "a larger difference after it does not hide a NaN";
  EXPECT_TRUE(std::isnan(broken.rms));
}

TEST(PredictedClasses, AreThoseOfImagesAndOfSequences) {
  // One image of two classes and two pixels: classes are axis 1.
  EXPECT_EQ(predicted_classes(DataKind::streets, {1, 2, 1, 2}, {1, 5, 2, 4}), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(predicted_classes(DataKind::text, {1, 2, 2}, {1, 5, 2, 2}), (std::vector<int64_t>{1, 0}));
  // Of boxes the last four numbers are a place.
  EXPECT_EQ(predicted_classes(DataKind::boxes, {1, 1, 6}, {1, 2, 9, 9, 9, 9}), (std::vector<int64_t>{1}));
}

TEST(MetricOf, StreetsIsTheMeanIntersectionOverUnionOfTheClassesThatOccur) {
  // Four pixels predicted 0, 1, 1, 0; labels 0, 1, 0 and none. Class 0: 1 of 2; class 1: 1 of 2.
  const Answers answers = answers_of({5, 1, 1, 5, 0, 2, 2, 0}, {1, 2, 1, 4}, {0, 1, 0, 255});
  EXPECT_NEAR(metric_of(DataKind::streets, answers), 0.5, 1e-12);
  // All right but the pixel without a label.
  EXPECT_NEAR(metric_of(DataKind::streets, answers_of({5, 1, 1, 5, 0, 2, 2, 0}, {1, 2, 1, 4}, {0, 1, 1, 255})), 1,
              1e-12);
  EXPECT_NEAR(metric_of(DataKind::images, answers_of({5, 1, 1, 5}, {2, 2}, {0, 0})), 0.5, 1e-12);
}

TEST(Evaluation, ErrorsOfTheFormsAreThoseOfTheirFormats) {
  const Findings findings = findings_of(
      evaluation_harness(),
      experiment_spec(kTinyMlp, "fp32", {{"steps", "20"}, {"checkpoints", "5"}, {"seeds", "2"}, {"samples", "64"}}));
  const auto error = [&](const char* form) { return number_at(findings, "evaluation.logit_error_rms", form); };
  // Unit roundoffs 2^-24, 2^-11 and 2^-8, times a few roundings.
  EXPECT_GT(error("fp32"), 0x1p-28);
  EXPECT_LT(error("fp32"), 0x1p-21);
  EXPECT_GT(error("full_fp16"), 0x1p-14);
  EXPECT_LT(error("full_fp16"), 0x1p-9);
  EXPECT_GT(error("full_bf16") / error("full_fp16"), 8 / 2.5);
  EXPECT_LT(error("full_bf16") / error("full_fp16"), 8 * 2.5);
  EXPECT_EQ(number_at(findings, "evaluation.half_share", "full_fp16"), 1);
  EXPECT_EQ(number_at(findings, "evaluation.half_share", "fp32"), 0);
  EXPECT_GT(number_at(findings, "evaluation.half_share", "autocast_fp16"), 0);
  EXPECT_LT(number_at(findings, "evaluation.half_share", "autocast_fp16"), 1) << "its parameters are fp32";
  EXPECT_EQ(number_at(findings, "evaluation.checkpoints"), 5);
  EXPECT_EQ(whole_curve(findings, "evaluation.logit_error_rms", "fp32").x, (std::vector<double>{4, 8, 12, 16, 20}));
  EXPECT_EQ(number_at(findings, "evaluation.predictions"), 64);
  EXPECT_EQ(number_at(findings, "evaluation.recomputed_equal"), 1);
  EXPECT_EQ(measured(findings, "evaluation.seed_deviation", "loss").samples.size(), 2u);
  EXPECT_FALSE(has_number(findings, "evaluation.flips", "full_fp16_folded")) << "an mlp has no batch norm";
  EXPECT_LE(std::fabs(number_at(findings, "evaluation.tau", "full_fp16/loss")), 1);
  EXPECT_GE(number_at(findings, "evaluation.selection_regret", "full_bf16"), 0);
}

// The running statistics are part of what is evaluated: without them the logits would be others.
TEST(Evaluation, OfAModelWithBatchNormHasItsStatisticsAndItsFoldedForm) {
  const Findings findings =
      findings_of(evaluation_harness(),
                  experiment_spec(kTinyConvnet, "fp32",
                                  {{"steps", "10"}, {"checkpoints", "2"}, {"seeds", "2"}, {"samples", "32"}}));
  EXPECT_LT(number_at(findings, "evaluation.logit_error_rms", "fp32"), 0x1p-18);
  for (const char* form : {"full_fp16", "full_fp16_folded"}) {
    EXPECT_GT(number_at(findings, "evaluation.logit_error_rms", form), 0x1p-14) << form;
    EXPECT_LT(number_at(findings, "evaluation.logit_error_rms", form), 0x1p-7) << form;
  }
  EXPECT_NE(number_at(findings, "evaluation.logit_error_rms", "full_fp16_folded"),
            number_at(findings, "evaluation.logit_error_rms", "full_fp16"));
}

// At some rate, checkpoints and rates differ by about as much as half precision rounds: it cannot rank them as fp32 does.
// Where they differ less, all are equal and tau is NaN; where they differ more, tau is 1.
TEST(Evaluation, RankingsDifferWhereDifferencesAreBelowHalfPrecision) {
  double of_checkpoints = 1, of_rates = 1;
  for (const double rate : {1e-5, 1e-4, 1e-3, 1e-2}) {
    TrialSpec spec =
        experiment_spec(kTinyMlp, "fp32", {{"steps", "20"}, {"checkpoints", "10"}, {"seeds", "2"}, {"samples", "64"}});
    spec.settings.rate = rate;
    of_checkpoints = std::fmin(of_checkpoints,
                               number_at(findings_of(evaluation_harness(), spec), "evaluation.tau", "full_bf16/loss"));
    spec.axes = {{"part", "rates"}, {"steps", "2"}, {"seeds", "2"}, {"samples", "64"}};
    const Findings rates = findings_of(evaluation_harness(), spec);
    for (const double tau : measured(rates, "evaluation.rate_tau", "half").samples) of_rates = std::fmin(of_rates, tau);
  }
  EXPECT_LT(of_checkpoints, 0.95);
  EXPECT_LT(of_rates, 0.95);
}

// The same checkpoints from a training of the test's own: the loss in fp32 of the one with the least loss in this form, less
// the least loss in fp32.
TEST(Evaluation, TheRegretIsWhatTheChosenCheckpointCosts) {
  constexpr int64_t kSamples = 64;
  double most = 0;
  for (const double rate : {1e-5, 1e-4, 3e-4}) {
    TrialSpec spec =
        experiment_spec(kTinyMlp, "fp32", {{"steps", "20"}, {"checkpoints", "10"}, {"seeds", "2"}, {"samples", "64"}});
    spec.settings.rate = rate;
    const Findings found = findings_of(evaluation_harness(), spec);
    for (const auto& [form, policy] : {std::pair{"full_fp16", "fp16"}, {"full_bf16", "bf16"}}) {
      Trial trial(spec);
      double least = HUGE_VAL, least_in_fp32 = HUGE_VAL, chosen = 0;
      for (int step = 0; step < 20; ++step) {
        trial.train_step(step);
        if (step % 2 == 0) continue;
        const double in_fp32 = trial.evaluate(kSamples, &policy_named("fp32")).loss,
                     in_form = trial.evaluate(kSamples, &policy_named(policy)).loss;
        if (in_form < least) least = in_form, chosen = in_fp32;
        if (in_fp32 < least_in_fp32) least_in_fp32 = in_fp32;
      }
      EXPECT_NEAR(number_at(found, "evaluation.selection_regret", form), chosen - least_in_fp32, 1e-9)
          << form << " " << rate;
      EXPECT_EQ(number_at(found, "evaluation.best_unchanged", form + std::string("/loss")), chosen == least_in_fp32)
          << form << " " << rate;
      most = std::fmax(most, chosen - least_in_fp32);
    }
  }
  EXPECT_GT(most, 1e-6) << "else the test says nothing";
}

TEST(Evaluation, CheckpointsAreThoseOfShorterTrainings) {
  const TrialSpec spec = experiment_spec(kTinyConvnet, "fp32");
  const std::vector<ModelValues> kept = train_checkpoints(spec, 10, 3);  // after steps 3, 6 and 10
  ASSERT_EQ(kept.size(), 3u);
  for (const auto& [steps, place] : {std::pair{3, 0}, {6, 1}, {10, 2}}) {
    Trial trial(spec);
    for (int step = 0; step < steps; ++step) trial.train_step(step);
    EXPECT_EQ(all_values(values_of(trial)), all_values(kept[static_cast<size_t>(place)])) << steps;
  }
  EXPECT_NE(all_values(kept[0]), all_values(kept[1]));
}

TEST(Evaluation, ChangesATrainingOnlyIfItLeavesTheModelInHalf) {
  const Axes axes = {{"part", "mid_training"}, {"steps", "6"}, {"samples", "16"}};
  const Findings fp32 = findings_of(evaluation_harness(), experiment_spec(kTinyConvnet, "fp32", axes));
  const auto unchanged = [](const Findings& findings, const char* at) {
    return number_at(findings, "evaluation.training_unchanged", at);
  };
  EXPECT_EQ(unchanged(fp32, "same_again"), 1);
  EXPECT_EQ(unchanged(fp32, "copy"), 1);
  EXPECT_EQ(unchanged(fp32, "in_place_restored"), 1);
  EXPECT_LT(unchanged(fp32, "in_place"), 0.5);
  EXPECT_GT(number_at(fp32, "evaluation.training_distance", "in_place"), 0);
  // A model in half has nothing to lose when it is cast to half.
  const Findings fp16 = findings_of(evaluation_harness(), experiment_spec(kTinyConvnet, "fp16", axes));
  EXPECT_EQ(unchanged(fp16, "in_place"), 1);
}

// Without dropout and batch norm, an evaluation is the forward pass of a step without the loss.
TEST(Evaluation, CostsTheForwardPassOfAStep) {
  const char* const subject = "mlp/b8_i16_h24_o10";
  const Findings found =
      findings_of(evaluation_harness(),
                  experiment_spec(subject, "fp32", {{"part", "mid_training"}, {"steps", "2"}, {"samples", "16"}}));
  const Findings traffic = findings_of(traffic_harness(), experiment_spec(subject, "fp32"));
  const auto moved = [&](const char* at) {
    return number_at(traffic, "traffic.read", at) + number_at(traffic, "traffic.written", at);
  };
  EXPECT_EQ(number_at(found, "evaluation.step_cost"),
            (moved("forward") - moved("forward/softmax_cross_entropy")) / moved(""));
}

TEST(Evaluation, WithoutTrainAfterEvalTheRunningStatisticsStop) {
  const Findings findings =
      findings_of(evaluation_harness(),
                  experiment_spec(kTinyConvnet, "fp32", {{"part", "mid_training"}, {"steps", "6"}, {"samples", "16"}}));
  EXPECT_EQ(number_at(findings, "evaluation.statistics_change", "stays_eval"), 0);
  EXPECT_GT(number_at(findings, "evaluation.statistics_change", "train_again"), 0);
}

TEST(Evaluation, MemoryGrowsByTheLogitsThatAreKept) {
  const Findings findings =
      findings_of(evaluation_harness(), experiment_spec(kTinyMlp, "fp32", {{"part", "memory"}, {"batches", "8"}}));
  const auto grows = [&](const char* at) { return number_at(findings, "evaluation.bytes_per_batch", at); };
  EXPECT_EQ(grows("fp32/streamed"), 0);
  EXPECT_EQ(grows("fp32/kept"), 8 * 10 * 4) << "8 samples of 10 logits";
  EXPECT_EQ(grows("full_fp16/kept"), 8 * 10 * 2);
  EXPECT_EQ(whole_curve(findings, "evaluation.peak_bytes", "fp32/kept").x, (std::vector<double>{1, 2, 4, 8}));
  const double weights = number_at(findings, "evaluation.weight_bytes", "fp32");
  EXPECT_EQ(weights, 4 * (16 * 24 + 24 + 24 * 24 + 24 + 24 * 10 + 10));
  EXPECT_EQ(number_at(findings, "evaluation.weight_bytes", "full_fp16"), weights / 2);
  EXPECT_GT(number_at(findings, "evaluation.weight_bytes", "autocast_fp16"), weights) << "copies are added";
}

TEST(Evaluation, RatesAreRankedAgainstTheSameSeedAndAgainstOthers) {
  const Findings findings = findings_of(
      evaluation_harness(),
      experiment_spec(kTinyMlp, "fp32", {{"part", "rates"}, {"steps", "10"}, {"seeds", "3"}, {"samples", "64"}}));
  const Series& curve = whole_curve(findings, "evaluation.rate_loss", "full_fp16");
  ASSERT_EQ(curve.x.size(), 8u);
  EXPECT_NEAR(curve.x[5], 0.05, 1e-12) << "the subject's own rate";
  EXPECT_NEAR(curve.x[7] / curve.x[0], 128, 1e-9);
  EXPECT_EQ(measured(findings, "evaluation.rate_tau", "half").samples.size(), 3u);
  // Rates so far apart change the loss more than half precision does.
  EXPECT_GT(number_at(findings, "evaluation.rate_tau", "half"), 0.8);
  EXPECT_TRUE(measured(findings, "evaluation.rate_tau", "seeds").standard_error);
}

TEST(Evaluation, SlotsHoldEachLayerInTurn) {
  const Subject& subject = subject_named("resnet/b2_s8_n1_w4");
  std::set<std::string> kinds;
  const std::vector<SlotNetwork> slots = slot_networks(subject);
  for (const SlotNetwork& slot : slots) {
    EXPECT_EQ(output_shape(slot.network, subject.input), Shape({2, 10})) << slot.name;
    for (const LayerSpec& layer : slot.network.layers)
      if (layer.name == "slot") {
        EXPECT_TRUE(kinds.insert(layer.kind).second) << layer.kind;
      }
  }
  EXPECT_EQ(slots.size(), kinds.size() + 1) << "one has an empty slot";
  const Findings findings = findings_of(
      evaluation_harness(), experiment_spec("resnet/b2_s8_n1_w4", "fp32",
                                            {{"part", "slots"}, {"steps", "2"}, {"seeds", "2"}, {"samples", "16"}}));
  for (const SlotNetwork& slot : slots) {
    EXPECT_GT(number_at(findings, "evaluation.slot_logit_error", slot.name), 0) << slot.name;
    EXPECT_LT(number_at(findings, "evaluation.slot_logit_error", slot.name), 0.05) << slot.name;
  }
  EXPECT_TRUE(refusal_of(evaluation_harness(), experiment_spec(kTinyMlp, "fp32", {{"part", "slots"}})));
}

TEST(Evaluation, RefusesAxesThatAPartDoesNotRead) {
  const auto refusal = [](Axes axes) {
    return refusal_of(evaluation_harness(), experiment_spec(kTinyMlp, "fp32", std::move(axes))).value_or("");
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"part", "memory"}, {"steps", "40"}}), "part memory has no axis steps");
  EXPECT_EQ(refusal({{"steps", "10"}}), "more checkpoints than steps");
}

}  // namespace
}  // namespace halfmark::accuracy
