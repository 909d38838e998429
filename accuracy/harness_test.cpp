// Tests of the harnesses on cases with known results: planted errors,
// known ranges, drift of half statistics, trainings that must fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/oracle.h"
#include "accuracy/stats.h"
#include "accuracy/update_count.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

const Subject& first_of(const std::string& name) {
  const auto found =
      std::find_if(subjects().begin(), subjects().end(), [&](const Subject& s) { return s.name == name; });
  if (found == subjects().end()) throw Error("no subject " + name);
  return *found;
}

TrialSpec spec_of(const std::string& subject, std::string_view policy, Axes axes = {}) {
  TrialSpec spec;
  spec.subject = &first_of(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  spec.axes = std::move(axes);
  return spec;
}

const Measurement& number(const Findings& findings, const std::string& metric, const std::string& at = "") {
  for (const Measurement& m : findings.measurements)
    if (m.metric == metric && m.at == at) return m;
  throw Error("no " + metric + " at '" + at + "'");
}
double value(const Findings& findings, const std::string& metric, const std::string& at = "") {
  return number(findings, metric, at).value;
}

const Series& curve(const Findings& findings, const std::string& metric, const std::string& at = "") {
  for (const Series& s : findings.series)
    if (s.metric == metric && s.at == at) return s;
  throw Error("no curve " + metric + " at '" + at + "'");
}

TEST(Harnesses, NameEveryMetricOnceAndWriteOnlyThose) {
  for (const Harness& harness : accuracy_harnesses()) {
    std::set<std::string_view> names;
    for (const MetricRow& row : harness.metrics) EXPECT_TRUE(names.insert(row.metric).second) << row.metric;
    FindingsWriter out(harness.metrics);
    EXPECT_THROW(out.number("error.invented", "", 0), Error);
  }
}

TEST(ErrorHarness, MeasuresTheUnitRoundoffOfEachFormat) {
  const Harness harness = error_harness();
  const double fp32 = value(harness.measure(spec_of("linear", "fp32")), "error.nmse", "output");
  const double fp16 = value(harness.measure(spec_of("linear", "fp16")), "error.nmse", "output");
  const double bf16 = value(harness.measure(spec_of("linear", "bf16")), "error.nmse", "output");
  // Unit roundoffs 2^-24, 2^-11, 2^-8: squares 2^-48, 2^-22,
  // 2^-16, times a few roundings, less for the mean significand.
  EXPECT_GT(fp32, 0x1p-53);
  EXPECT_LT(fp32, 0x1p-45);
  EXPECT_GT(fp16, 0x1p-26);
  EXPECT_LT(fp16, 0x1p-20);
  EXPECT_GT(bf16, 0x1p-20);
  EXPECT_LT(bf16, 0x1p-14);
}

TEST(ErrorHarness, SeparatesRoundedInputsFromRoundedArithmetic) {
  const Findings findings = error_harness().measure(spec_of("linear", "fp16"));
  EXPECT_LT(value(findings, "error.arithmetic.nmse", "output"), value(findings, "error.nmse", "output"));
}

TEST(ErrorHarness, StaysWithinItsBounds) {
  for (const char* subject : {"linear", "conv2d"})
    for (const char* policy : {"fp32", "tf32", "fp16", "amp-fp16", "bf16", "amp-bf16"}) {
      const Findings findings = error_harness().measure(spec_of(subject, policy));
      const Measurement& nmse = number(findings, "error.arithmetic.nmse", "output");
      ASSERT_TRUE(nmse.bound) << subject << " " << policy;
      EXPECT_LE(nmse.value, *nmse.bound) << subject << " " << policy;
      // A bound that is far too large would catch nothing. The worst case is K = 36 roundings of sums that cancel to a
      // fifth of their terms, against a single rounding: (36 * 5)^2; times 5^2, as both numbers are estimates.
      EXPECT_LE(*nmse.bound, 1e6 * std::max(nmse.value, 1e-18)) << subject << " " << policy;
    }
}

TEST(ErrorHarness, DetectsAPlantedError) {
  const TrialSpec spec = spec_of("linear", "fp32");
  const auto reference = reference_of(spec, Inputs::drawn);
  std::vector<double> output = reference->output;
  output[3] += 0.5;
  double square = 0;
  for (const double y : reference->output) square += y * y;
  EXPECT_NEAR(error_stats(output, reference->output, kFp32).nmse, 0.25 / square, 1e-12);
  // The same for an error in the trial itself: another seed gives another model.
  TrialSpec other = spec;
  other.seed = 1;
  Trial trial(other);
  trial.load_batch(0);
  EXPECT_GT(error_stats(trial.forward().values(), reference->output, kFp32).nmse, 0.1);
}

// The gradient of a bias before batch norm is 0: the mean is subtracted. What fp64 computes of it is rounding.
TEST(ErrorHarness, GivesNoErrorRelativeToRoundingNoise) {
  for (const char* bias : {"with", "without"}) {
    const bool has_bias = bias == std::string_view("with");
    Subject subject =
        subject_of_network({4, 3, 6, 6}, DataKind::images, 10,
                           {{{"conv2d", "conv", {{"out", int64_t{5}}, {"kernel", int64_t{3}}, {"bias", has_bias}}},
                             {"batchnorm2d", "bn"},
                             {"relu", "relu"},
                             {"flatten", "flatten"},
                             {"linear", "fc", {{"out", int64_t{10}}}}}});
    subject.name = "biased", subject.sizes = bias;
    TrialSpec spec = spec_of("mlp", "fp32");
    spec.subject = &subject;
    const Findings findings = error_harness().measure(spec);
    const auto has = [&](std::string_view metric, std::string_view at) {
      return std::any_of(findings.measurements.begin(), findings.measurements.end(),
                         [&](const Measurement& one) { return one.metric == metric && one.at == at; });
    };
    EXPECT_EQ(has("error.cancelled", "gradient/conv.bias"), has_bias);
    const Findings range = range_harness().measure(spec);
    const auto in_range = [&](std::string_view metric, std::string_view at) {
      return std::any_of(range.measurements.begin(), range.measurements.end(),
                         [&](const Measurement& one) { return one.metric == metric && one.at == at; });
    };
    EXPECT_EQ(in_range("range.cancelled", "gradient/conv.bias"), has_bias);
    EXPECT_EQ(in_range("range.headroom", "gradient/conv.bias"), has_bias);
    EXPECT_FALSE(in_range("range.underflow", "gradient/conv.bias"));
    EXPECT_FALSE(in_range("range.subnormal", "gradient/conv.bias"));
    for (const char* at : {"gradient/conv.weight", "gradient/conv", "gradient/fc.bias"}) {
      EXPECT_TRUE(in_range("range.underflow", at)) << at;
      EXPECT_FALSE(in_range("range.cancelled", at)) << at;
    }
    EXPECT_EQ(has("error.nan", "gradient/conv.bias"), has_bias);
    for (const char* metric : {"error.nmse", "error.arithmetic.nmse", "error.cosine", "error.zeroed"})
      EXPECT_FALSE(has(metric, "gradient/conv.bias")) << metric;
    for (const char* at :
         {"output", "gradient/input", "gradient/conv.weight", "gradient/bn.shift", "gradient/fc.bias"}) {
      EXPECT_TRUE(has("error.nmse", at)) << at;
      EXPECT_FALSE(has("error.cancelled", at)) << at;
    }
  }
}

// The least gradient of the subjects, 2.4e-11 of the largest, is small and real.
TEST(ErrorHarness, KeepsTheErrorOfASmallGradient) {
  const Findings findings = error_harness().measure(spec_of("detector", "fp32"));
  EXPECT_GE(value(findings, "error.nmse", "gradient/smooth5.weight"), 0);
  for (const Measurement& one : findings.measurements) EXPECT_NE(one.metric, "error.cancelled") << one.at;
}

// Gradients of the loss times 2^-16: stored with the scale 2^16 they are normal numbers of fp16, without it they would not be.
TEST(ErrorHarness, CountsSubnormalGradientsOfTheInputAsStoredWithTheLossScale) {
  TrialSpec spec = spec_of("mlp", "amp-fp16");
  spec.settings.loss_factor = 0x1p-16;
  const Findings scaled = error_harness().measure(spec);
  spec.settings.scaler = ScalerSpec{};
  const Findings plain = error_harness().measure(spec);
  EXPECT_LT(value(scaled, "error.subnormal", "gradient/input"), 0.05);
  EXPECT_GT(value(plain, "error.subnormal", "gradient/input"), 0.25);
}

TEST(ErrorHarness, SharesOneReferenceBetweenPolicies) {
  const TrialSpec spec = spec_of("linear", "fp16");
  EXPECT_EQ(reference_of(spec, Inputs::drawn), reference_of(spec.under(policy_named("bf16")), Inputs::drawn));
  EXPECT_NE(reference_of(spec, Inputs::rounded), reference_of(spec.under(policy_named("bf16")), Inputs::rounded));
}

TEST(RangeHarness, MeasuresTheHeadroomOfAKnownTensor) {
  TrialSpec spec = spec_of("linear", "fp16");
  const Findings plain = range_harness().measure(spec);
  spec.settings.input_scale = 1024;  // activations scale with the input, except for the bias
  const Findings scaled = range_harness().measure(spec);
  EXPECT_NEAR(value(plain, "range.headroom", "activations") - value(scaled, "range.headroom", "activations"), 10, 0.5);
  EXPECT_EQ(value(plain, "range.format_max_exponent"), 15);
  EXPECT_EQ(value(plain, "range.format_min_normal_exponent"), -14);
  EXPECT_EQ(value(plain, "range.format_min_exponent"), -24);
}

// 3/4 of the least subnormal of fp16 rounds to it, and 1/4 to 0: the one is subnormal, the other underflows.
TEST(RangeHarness, CountsAsUnderflowWhatRoundsToZero) {
  for (const auto& [factor, underflows] : {std::pair{0.75, 0.0}, std::pair{0.25, 1.0}}) {
    Subject subject = subject_of_network({2, 4}, DataKind::normal, 0, {{{"relu", "relu"}}});
    subject.name = "small", subject.sizes = "b2";
    TrialSpec spec = spec_of("mlp", "fp16");
    spec.subject = &subject;
    spec.settings.input_scale = 0, spec.settings.input_offset = factor * 0x1p-24;
    const Findings findings = range_harness().measure(spec);
    EXPECT_EQ(value(findings, "range.underflow", "activation/relu"), underflows) << factor;
    EXPECT_EQ(value(findings, "range.subnormal", "activation/relu"), 1 - underflows) << factor;
  }
}

TEST(RangeHarness, NamesTheFirstTensorThatOverflows) {
  TrialSpec spec = spec_of("mlp", "fp16");
  spec.settings.input_scale = 60000;
  const Findings findings = range_harness().measure(spec);
  const auto found = std::find_if(findings.measurements.begin(), findings.measurements.end(),
                                  [](const Measurement& m) { return m.metric == "range.first_nonfinite"; });
  ASSERT_NE(found, findings.measurements.end());
  EXPECT_EQ(found->at, "activation/fc1");
  EXPECT_LT(value(findings, "range.headroom", "activation/fc1"), 0);
}

TEST(RangeHarness, DetectsThatGradientsUnderflowWithoutALossScale) {
  TrialSpec spec = spec_of("mlp", "fp16");
  spec.settings.loss_factor = 0x1p-24;
  const Findings plain = range_harness().measure(spec);
  const Findings scaled = range_harness().measure([&] {
    TrialSpec amp = spec.under(policy_named("amp-fp16"));
    return amp;
  }());
  EXPECT_GT(value(plain, "range.underflow", "gradients"), 0.5);
  EXPECT_LT(value(scaled, "range.underflow", "gradients"), 0.1);
}

TEST(BatchnormDrift, HalfStatisticsStopShortOfTheirTarget) {
  const auto drift = [](const char* storage, const char* momentum, const char* noise) {
    const TrialSpec spec =
        spec_of("batchnorm2d", "fp32", {{"storage", storage}, {"momentum", momentum}, {"noise", noise}});
    return value(batchnorm_drift_harness().measure(spec), "batchnorm.running_var_drift");
  };
  // Without noise, an update below half an ulp is lost: m |x - r| < ulp(r) / 2. With r in [2, 4) and a target of about
  // 4 the drift is a few per cent in f16 and a fifth in bf16 at m = 0.01, and ten times less at m = 0.1.
  EXPECT_NEAR(drift("f32", "0.01", "0"), 0, 1e-3);
  EXPECT_LT(drift("f16", "0.1", "0"), -1e-3);
  EXPECT_GT(drift("f16", "0.1", "0"), -0.01);
  EXPECT_LT(drift("f16", "0.01", "0"), -0.01);
  EXPECT_GT(drift("f16", "0.01", "0"), -0.06);
  EXPECT_LT(drift("bf16", "0.01", "0"), -0.1);
  EXPECT_GT(drift("bf16", "0.01", "0"), -0.4);
  // Noise acts as dither.
  EXPECT_NEAR(drift("f16", "0.01", "0.1"), 0, 0.01);
}

// The table of stalls again: r = (1 - m) r + m v of each channel in a plain loop, v being the variance of the same batch with
// the divisor n - 1, rounded to the storage after each step, beside the same loop in fp64.
TEST(BatchnormDrift, HasTheStallsOfAPlainLoop) {
  for (const auto& [storage, format] : {std::pair{"f16", &kFp16}, {"bf16", &kBf16}})
    for (const auto& [text, momentum] : {std::pair{"0.1", 0.1}, {"0.01", 0.01}}) {
      TrialSpec spec = spec_of("batchnorm2d", "fp32", {{"storage", storage}, {"momentum", text}, {"noise", "0"}});
      const double found = value(batchnorm_drift_harness().measure(spec), "batchnorm.running_var_drift");
      spec.settings.input_scale = 2, spec.settings.input_offset = 3;
      Trial trial(spec);
      trial.load_batch(0);
      const Shape shape = trial.input().shape();
      const std::vector<double> x = trial.input().values();
      const auto channels = static_cast<size_t>(shape[1]), pixels = static_cast<size_t>(shape[2] * shape[3]);
      const double count = static_cast<double>(x.size() / channels);
      double expected = 0;
      for (size_t channel = 0; channel < channels; ++channel) {
        double mean = 0, variance = 0, running = 1, exact = 1;
        for (size_t i = 0; i < x.size(); ++i)
          if (i / pixels % channels == channel) mean += x[i] / count;
        for (size_t i = 0; i < x.size(); ++i)
          if (i / pixels % channels == channel) variance += (x[i] - mean) * (x[i] - mean) / (count - 1);
        for (int step = 0; step < static_cast<int>(8 / momentum); ++step) {
          running = round_to(*format, (1 - momentum) * running + momentum * variance);
          exact = (1 - momentum) * exact + momentum * variance;
        }
        expected += (running - exact) / exact / static_cast<double>(channels);
      }
      EXPECT_LT(expected, -1e-3) << storage << " " << text;
      EXPECT_NEAR(found, expected, 1e-3 * std::fabs(expected)) << storage << " " << text;
    }
}

// Of 64 values of a channel, sums in fp32 lose nothing that matters here, and each addition in bf16 up to 2^-9 of the sum.
TEST(BatchnormDrift, GrowsWithNarrowSumsOfABatch) {
  const auto error = [](const char* accumulate) {
    const TrialSpec spec = spec_of("batchnorm2d", "amp-fp16", {{"accumulate", accumulate}});
    return std::fabs(value(batchnorm_drift_harness().measure(spec), "batchnorm.running_var_drift"));
  };
  EXPECT_LT(error("f32"), 1e-3);
  EXPECT_NEAR(error("f64"), error("f32"), 1e-6);
  EXPECT_GT(error("f16"), error("f32"));
  EXPECT_GT(error("bf16"), error("f16"));
  EXPECT_LT(error("bf16"), 64 * 0x1p-8);
}

TEST(BatchnormDrift, HasAControlWhoseSumsOverflowInFp16Only) {
  const Harness harness = batchnorm_drift_harness();
  const auto at_scale = [](const char* policy, const char* accumulate) {
    return spec_of("batchnorm2d", policy, {{"accumulate", accumulate}, {"scale", "512"}});
  };
  EXPECT_EQ(value(harness.measure(at_scale("amp-fp16", "f16")), "batchnorm.nonfinite_statistics"), 0.5);
  EXPECT_EQ(value(harness.measure(at_scale("amp-fp16", "bf16")), "batchnorm.nonfinite_statistics"), 0);
  ASSERT_TRUE(harness.expects(at_scale("amp-fp16", "f16")));
  EXPECT_EQ(harness.expects(at_scale("amp-fp16", "f16"))->relation, ">=");
  EXPECT_EQ(harness.expects(at_scale("amp-fp16", "bf16"))->relation, "==");
  EXPECT_FALSE(harness.expects(at_scale("fp16", "f16"))) << "f16 statistics cannot hold 2^18 at all";
  EXPECT_FALSE(harness.expects(spec_of("batchnorm2d", "amp-fp16", {{"accumulate", "f16"}})));
}

TEST(BatchnormDrift, RefusesSubjectsWithoutStatistics) {
  EXPECT_TRUE(batchnorm_drift_harness().refuses(spec_of("linear", "fp32")));
  EXPECT_FALSE(batchnorm_drift_harness().refuses(spec_of("batchnorm2d", "fp32")));
}

TEST(Training, OfFp32EqualsItsFp32Baseline) {
  const Findings findings = training_harness().measure(spec_of("mlp", "fp32"));
  EXPECT_EQ(curve(findings, "training.loss").y, curve(findings, "training.loss_fp32").y);
  EXPECT_EQ(value(findings, "training.loss_difference"), 0);
  EXPECT_EQ(value(findings, "training.skipped_steps"), 0);
}

TEST(Training, GivesTheAccuracyOfAThousandHeldOutSamplesWithItsStandardError) {
  const Findings findings = training_harness().measure(spec_of("mlp", "amp-fp16"));
  const double samples = value(findings, "evaluation.samples");
  EXPECT_GE(samples, 1000);
  for (const char* at : {"fp32", "half"}) {
    const Measurement& accuracy = number(findings, "evaluation.accuracy", at);
    const double right = accuracy.value * samples, q = (right + 1) / (samples + 2);
    EXPECT_EQ(right, std::round(right)) << "the accuracy counts samples";
    ASSERT_TRUE(accuracy.standard_error) << at;
    EXPECT_NEAR(*accuracy.standard_error, std::sqrt(q * (1 - q) / samples), 1e-15) << at;
  }
}

TEST(Training, EvaluatesAModelWithFoldedBatchNormToo) {
  // That folding is done is tested in models/network/folded_test.cpp: losses are too coarse to show it here.
  const Findings findings = training_harness().measure(spec_of("convnet", "amp-fp16", {{"steps", "10"}}));
  EXPECT_NEAR(value(findings, "evaluation.folding_difference", "fp32"), 0, 1e-5);
  EXPECT_NEAR(value(findings, "evaluation.folding_difference", "half"), 0, 0.05);
  for (const Measurement& one : training_harness().measure(spec_of("mlp", "fp32", {{"steps", "10"}})).measurements)
    EXPECT_FALSE(one.metric.starts_with("evaluation.fold")) << "the mlp has no batch norm";
}

TEST(Training, TakesOptimizerRateAndStorageAsAxes) {
  const auto noop = [](const char* policy, Axes axes) {
    axes["steps"] = "10";
    return value(training_harness().measure(spec_of("mlp", policy, std::move(axes))), "training.noop_updates");
  };
  // Updates far below half an ulp of bf16 change nothing, unless they are rounded at random or kept for later.
  const double nearest = noop("bf16", {{"optimizer", "adamw"}, {"rate", "0.0001"}});
  EXPECT_GT(nearest, 0.3);
  EXPECT_EQ(noop("bf16", {{"optimizer", "adamw"}, {"rate", "0.0001"}, {"storage", "nearest"}}), nearest);
  EXPECT_LT(noop("bf16-master", {{"optimizer", "adamw"}, {"rate", "0.0001"}}), 0.2);
  EXPECT_NE(noop("bf16", {{"optimizer", "adamw"}, {"rate", "0.0001"}, {"storage", "stochastic"}}), nearest);
  EXPECT_NE(noop("bf16", {{"optimizer", "sgd"}, {"rate", "0.0001"}}), nearest);
  for (const char* policy : {"fp32", "amp-fp16", "fp16-master"})
    EXPECT_TRUE(training_harness().refuses(spec_of("mlp", policy, {{"storage", "kahan"}}))) << policy;
  EXPECT_FALSE(training_harness().refuses(spec_of("mlp", "fp16", {{"storage", "kahan"}})));
}

TEST(Training, LosesUpdatesWhenGradientsUnderflowUnlessTheLossIsScaled) {
  const Findings fp16 = training_harness().measure(spec_of("mlp", "fp16", {{"control", "underflow"}}));
  const Findings amp = training_harness().measure(spec_of("mlp", "amp-fp16", {{"control", "underflow"}}));
  EXPECT_GT(value(fp16, "training.noop_updates"), 0.95);
  EXPECT_LT(value(amp, "training.noop_updates"), 0.2);
}

TEST(UpdateCount, LeavesOutWhatWasNotFiniteBefore) {
  UpdateCount count;
  const double nan = std::nan(""), infinity = HUGE_VAL;
  count.add({1, 2, 3, nan, infinity, nan}, {1, 2.5, nan, nan, infinity, 1});
  EXPECT_EQ(count.all, 3);
  EXPECT_EQ(count.unchanged, 1);
  count.add(count);
  EXPECT_EQ(count.all, 6);
  EXPECT_EQ(count.unchanged, 2);
}

TEST(Training, HasNoShareOfLostUpdatesWhereNoneWasMade) {
  for (const auto& [harness, metric] :
       {std::pair{training_harness(), "training.noop_updates"}, {convergence_harness(), "convergence.noop_updates"}}) {
    std::map<std::string, std::vector<double>> lost;
    for (const char* scaler : {"torch:1e38", "static:1e38", "torch"}) {
      TrialSpec spec = spec_of("mlp", "amp-fp16", {{"steps", "10"}});
      spec.settings.scaler = models::scaler_of(scaler);
      std::vector<double>& shares = lost[scaler];
      for (const Measurement& one : harness.measure(spec).measurements)
        if (one.metric == metric) shares.push_back(one.value);
    }
    EXPECT_TRUE(lost["torch:1e38"].empty()) << metric << ": every step is skipped";
    ASSERT_EQ(lost["static:1e38"].size(), 1u) << metric;
    ASSERT_EQ(lost["torch"].size(), 1u) << metric;
  }
}

TEST(Training, ControlsHaveExpectationsForTheirPoliciesOnly) {
  const Harness harness = training_harness();
  EXPECT_TRUE(harness.expects(spec_of("mlp", "fp16", {{"control", "underflow"}})));
  EXPECT_FALSE(harness.expects(spec_of("mlp", "fp16")));
  EXPECT_TRUE(harness.refuses(spec_of("mlp", "fp32", {{"control", "underflow"}})));
  EXPECT_TRUE(harness.refuses(spec_of("linear", "fp32")));
}

TEST(Axis, TakesNumbersInTheirShortestFormAndListedValuesUnchanged) {
  const Axis real{"rate", {"own", "0.10"}, AxisNumbers{0, 10, false}}, whole{"steps", {"40"}, AxisNumbers{1, 99, true}},
      listed{"sum", {"policy", "1"}};
  EXPECT_EQ(settled_value(real, "0.020"), "0.02");
  EXPECT_EQ(settled_value(real, "2e-2"), "0.02");
  EXPECT_EQ(settled_value(real, "0.10"), "0.10");
  EXPECT_EQ(settled_value(real, "1e-05"), "1e-05");
  EXPECT_EQ(settled_value(whole, "040"), "40");
  EXPECT_EQ(settled_value(whole, "99"), "99");
  for (const char* bad : {"", "-1", "10.5", "nan", "inf", "0.1x", " 1", "1 ", "0x1", "+1", "1,5"})
    EXPECT_FALSE(settled_value(real, bad)) << bad;
  for (const char* bad : {"0", "100", "1.5", "x"}) EXPECT_FALSE(settled_value(whole, bad)) << bad;
  EXPECT_FALSE(settled_value(listed, "2"));
  EXPECT_EQ(values_text(listed), "policy, 1");
  EXPECT_EQ(values_text(whole), "40, or a whole number from 1 to 99");
}

TEST(Axis, RefusesAValueThatIsNotListed) {
  EXPECT_THROW(axis_value(batchnorm_drift_harness(), spec_of("batchnorm2d", "fp32", {{"momentum", "7"}}), "momentum"),
               Error);
  EXPECT_EQ(axis_value(batchnorm_drift_harness(), spec_of("batchnorm2d", "fp32"), "momentum"), "0.1");
}

}  // namespace
}  // namespace halfmark::accuracy
