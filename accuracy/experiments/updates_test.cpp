// The harness updates: shares against a step rounded by the test itself, orders that theory gives, and controls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

constexpr const char* kTiny = "mlp/b8_i16_h24_o10";

Findings updates_of(const std::string& subject, const char* policy, Axes axes) {
  return findings_of(updates_harness(), experiment_spec(subject, policy, std::move(axes)));
}

// Without momentum a step is w - rate g, computed in at least fp32 and rounded once.
TEST(Updates, AStepThatRoundsBackIsCountedAsNone) {
  const Findings findings = updates_of(kTiny, "fp16", {{"rate", "0.001"}, {"steps", "1"}, {"seeds", "1"}});
  TrialSpec spec = experiment_spec(kTiny, "fp16");
  Trial trial(spec);
  trial.load_batch(0);
  trial.forward();
  trial.backward();
  double same = 0, all = 0;
  for (const Param* param : trial.params()) {
    const std::vector<double> w = param->value.values(), g = param->grad.values();
    for (size_t i = 0; i < w.size(); ++i) same += round_to(kFp16, w[i] - 1e-3 * g[i]) == w[i], ++all;
  }
  EXPECT_GT(same / all, 0.3);
  EXPECT_LT(same / all, 1);
  EXPECT_NEAR(number_at(findings, "updates.noop", "0.001"), same / all, 0.002) << "1e-3 is no fp32 number";
}

// Each step is compared with the one before it, not with the start.
TEST(Updates, LostUpdatesOfEachStepAreCounted) {
  const Findings findings = updates_of(kTiny, "bf16", {{"rate", "0.01"}, {"steps", "3"}, {"seeds", "1"}});
  TrialSpec spec = experiment_spec(kTiny, "bf16");
  spec.settings.rate = 0.01, spec.settings.momentum = 0;
  Trial trial(spec);
  double same = 0, all = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<double>> before;
    for (const Param* param : trial.params()) before.push_back(param->value.values());
    trial.train_step(step);
    for (size_t p = 0; p < before.size(); ++p) {
      const std::vector<double> after = trial.params()[p]->value.values();
      for (size_t i = 0; i < after.size(); ++i) same += after[i] == before[p][i], ++all;
    }
  }
  EXPECT_EQ(number_at(findings, "updates.noop", "0.01"), same / all);
}

// Adam in fp16: its epsilon is 0 there, so that a step divides 0 by 0.
TEST(Updates, NoShareIsCountedWhereNoParameterStaysFinite) {
  const Findings findings =
      updates_of(kTiny, "fp16", {{"optimizer", "adam"}, {"rate", "0.01"}, {"steps", "20"}, {"seeds", "1"}});
  EXPECT_TRUE(std::isnan(number_at(findings, "updates.distance", "0.01"))) << "the parameters are not finite";
  const double noop = number_at(findings, "updates.noop", "0.01");
  EXPECT_TRUE(std::isnan(noop) || noop > 0) << noop << ": what is NaN has not changed by an update";
}

// The order of the unit roundoffs (rate 1e-3, no momentum): fp32 = amp < fp16 < bf16.
TEST(Updates, NarrowParametersLoseUpdatesInTheOrderOfTheirRoundoffs) {
  const Axes axes = {{"rate", "0.001"}, {"steps", "300"}, {"seeds", "1"}};
  const Findings amp = updates_of(kTiny, "amp-fp16", axes), fp16 = updates_of(kTiny, "fp16", axes),
                 bf16 = updates_of(kTiny, "bf16", axes);
  const auto noop = [](const Findings& findings) { return number_at(findings, "updates.noop", "0.001"); };
  const auto distance = [](const Findings& findings) { return number_at(findings, "updates.distance", "0.001"); };
  EXPECT_NEAR(noop(amp), number_at(amp, "updates.noop_fp32", "0.001"), 0.02);
  EXPECT_LT(noop(amp), 0.3);
  EXPECT_GT(noop(fp16), 0.6);
  EXPECT_GT(noop(bf16), noop(fp16) + 0.01);
  EXPECT_LT(distance(amp), 0.05);
  EXPECT_GT(distance(fp16), 0.2);
  EXPECT_GT(distance(bf16), distance(fp16));
  EXPECT_LT(std::fabs(number_at(amp, "updates.loss_gap", "0.001")), number_at(bf16, "updates.loss_gap", "0.001"));
  // The boundary: the median update is below the roundoff of both narrow formats, and above that of fp32.
  EXPECT_LT(number_at(bf16, "updates.ratio_over_roundoff", "0.001"),
            number_at(fp16, "updates.ratio_over_roundoff", "0.001"));
  EXPECT_NEAR(
      number_at(fp16, "updates.ratio_over_roundoff", "0.001") / number_at(bf16, "updates.ratio_over_roundoff", "0.001"),
      8, 1e-9);
  EXPECT_GT(number_at(amp, "updates.ratio_over_roundoff", "0.001"), 1);
}

// The median of |rate gradient / parameter| of 16 steps in fp32, in units of 2^-11 and 2^-8.
TEST(Updates, TheRatioToTheRoundoffIsThatOfPlainLoops) {
  constexpr double kRate = 1e-3;
  TrialSpec spec = experiment_spec(kTiny, "fp32");
  spec.settings.rate = kRate, spec.settings.momentum = 0;
  Trial trial(spec);
  std::vector<double> ratios;
  for (int step = 0; step < 16; ++step) {
    std::vector<std::vector<double>> before;
    for (const Param* param : trial.params()) before.push_back(param->value.values());
    trial.train_step(step);
    for (size_t p = 0; p < before.size(); ++p) {
      const std::vector<double> gradient = trial.params()[p]->grad.values();
      for (size_t i = 0; i < gradient.size(); ++i)
        if (gradient[i] != 0 && before[p][i] != 0) ratios.push_back(std::fabs(kRate * gradient[i] / before[p][i]));
    }
  }
  std::ranges::sort(ratios);
  const double median = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
  for (const auto& [policy, roundoff] :
       {std::pair{"fp16", 0x1p-11}, {"bf16", 0x1p-8}, {"amp-fp16", 0x1p-24}, {"fp16-master", 0x1p-24}}) {
    const Findings found = updates_of(kTiny, policy, {{"rate", "0.001"}, {"steps", "16"}, {"seeds", "1"}});
    EXPECT_NEAR(number_at(found, "updates.median_ratio", "0.001"), median, 1e-6 * median) << policy;
    EXPECT_NEAR(number_at(found, "updates.ratio_over_roundoff", "0.001"), median / roundoff, 1e-6 * median / roundoff)
        << policy;
  }
}

TEST(Updates, KahanAndStochasticRoundingKeepWhatNearestLoses) {
  const auto distance = [](const char* storage) {
    return number_at(
        updates_of(kTiny, "bf16", {{"rate", "0.001"}, {"steps", "300"}, {"seeds", "1"}, {"storage", storage}}),
        "updates.distance", "0.001");
  };
  const double nearest = distance("nearest");
  EXPECT_EQ(distance("own"), nearest);
  EXPECT_EQ(number_at(updates_of(kTiny, "bf16-kahan", {{"rate", "0.001"}, {"steps", "300"}, {"seeds", "1"}}),
                      "updates.distance", "0.001"),
            distance("kahan"));
  EXPECT_LT(distance("kahan"), nearest / 2);
  EXPECT_LT(distance("stochastic"), nearest);
}

TEST(Updates, Fp32AgainstItselfIsEqual) {
  const Findings findings = updates_of(kTiny, "fp32", {{"rate", "0.01"}, {"steps", "20"}, {"seeds", "2"}});
  EXPECT_EQ(number_at(findings, "updates.distance", "0.01"), 0);
  EXPECT_EQ(number_at(findings, "updates.loss_gap", "0.01"), 0);
  EXPECT_EQ(measured(findings, "updates.loss", "0.01").samples.size(), 2u);
}

TEST(Updates, ASweepHasACurveOverTheRates) {
  const Findings findings = updates_of(kTiny, "fp16", {{"steps", "10"}, {"seeds", "1"}, {"momentum", "0.9"}});
  const Series& curve = whole_curve(findings, "updates.noop");
  EXPECT_EQ(curve.x, (std::vector<double>{1e-4, 1e-3, 1e-2, 1e-1}));
  EXPECT_GT(curve.y.front(), curve.y.back()) << "a larger rate loses fewer updates";
}

// 1e-8 is 0 in fp16. In the first step of Adam v = 0.001 g^2 is 0 too for small g, and 0 / 0 is NaN.
TEST(Updates, AdamsEpsilonIsZeroInFp16) {
  const Axes axes = {{"part", "epsilon"}, {"steps", "3"}, {"seeds", "1"}};
  const Findings fp16 = updates_of(kTiny, "fp16", axes);
  EXPECT_EQ(number_at(fp16, "updates.epsilon_stored", "1e-08"), 0);
  EXPECT_GT(number_at(fp16, "updates.epsilon_stored", "1e-07"), 0);
  EXPECT_EQ(number_at(fp16, "updates.epsilon_first_nonfinite", "1e-08/each_operation"), 1);
  EXPECT_TRUE(std::isinf(number_at(fp16, "updates.epsilon_first_nonfinite", "0.001/each_operation")));
  const Findings fp32 = updates_of(kTiny, "fp32", axes);
  EXPECT_GT(number_at(fp32, "updates.epsilon_stored", "1e-08"), 0);
  EXPECT_TRUE(std::isinf(number_at(fp32, "updates.epsilon_first_nonfinite", "1e-08/each_operation")));
}

// n - 1 additions and n roundings of the terms: at most about 2 n u of the sum of magnitudes.
TEST(Updates, GradientsOfMicroBatchesAddedInHalfErrByItsRoundoff) {
  const Findings findings = updates_of(kTiny, "fp32", {{"part", "accumulation"}, {"micro_batches", "16"}});
  const auto error = [&](const char* dtype) { return number_at(findings, "updates.accumulated_error", dtype); };
  EXPECT_LT(error("f32"), 0x1p-20);
  EXPECT_GT(error("f16"), 0x1p-14);
  EXPECT_GT(error("bf16") / error("f16"), 8 / 2.5);
  EXPECT_LT(error("bf16") / error("f16"), 8 * 2.5);
  const Series& curve = whole_curve(findings, "updates.accumulated_error", "bf16");
  EXPECT_EQ(curve.x, (std::vector<double>{1, 2, 4, 8, 16}));
  EXPECT_LT(curve.y.front(), 0x1p-8) << "a single gradient is rounded once";
  EXPECT_GT(curve.y.back(), curve.y.front());
}

TEST(Updates, RefusesWhatHasNoEffect) {
  const auto refusal = [](const char* policy, Axes axes) {
    return refusal_of(updates_harness(), experiment_spec(kTiny, policy, std::move(axes))).value_or("");
  };
  EXPECT_EQ(refusal("fp16", {}), "");
  EXPECT_NE(refusal("amp-fp16", {{"storage", "kahan"}}), "");
  EXPECT_NE(refusal("bf16-kahan", {{"storage", "nearest"}}), "");
  EXPECT_NE(refusal("bf16-sr", {{"part", "epsilon"}}), "");
  EXPECT_NE(refusal("fp64", {}), "");
  EXPECT_NE(refusal("fp16", {{"optimizer", "adam"}, {"momentum", "0.9"}}), "");
  EXPECT_EQ(refusal("fp16", {{"part", "accumulation"}, {"rate", "0.1"}}), "part accumulation has no axis rate");
}

}  // namespace
}  // namespace halfmark::accuracy
