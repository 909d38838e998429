// The quantization harness, and what other harnesses do with policies that quantise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/devices.h"
#include "models/quantized_products.h"

namespace halfmark::accuracy {
namespace {

TrialSpec quantized_spec(std::string_view policy, const std::string& subject = "mlp/b8_i16_h24_o10") {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  return spec;
}

double loss_number(const Findings& found, std::string_view metric, std::string_view at) {
  for (const Measurement& one : found.measurements)
    if (one.metric == metric && one.at == at) return one.value;
  ADD_FAILURE() << "no " << metric << " at " << at;
  return NAN;
}

// Three layers: x, w and dy of each once if codes serve both products, else twice.
TEST(Quantization, CountsTheOperandsOfEveryRecipe) {
  for (const auto& [policy, operands] :
       {std::pair{"fp8-delayed", 9}, {"fp8-current", 9}, {"fp8-block", 15}, {"mxfp8", 18}, {"nvfp4", 15}}) {
    const Findings found = quantization_harness().measure(quantized_spec(policy));
    EXPECT_EQ(loss_number(found, "quantization.operands", ""), operands) << policy;
    check_findings(quantization_harness(), found);
  }
}

TEST(Quantization, ShowsThatDelayedScalingBeginsWithTheScale1) {
  TrialSpec spec = quantized_spec("fp8-delayed");
  spec.settings.input_scale = 1000;
  const Findings found = quantization_harness().measure(spec);
  EXPECT_GT(loss_number(found, "quantization.first_saturated", "fc1/x/forward"), 0.5);
  EXPECT_LT(loss_number(found, "quantization.saturated", "fc1/x/forward"), 0.05);
  const auto scales = std::find_if(found.series.begin(), found.series.end(),
                                   [](const Series& one) { return one.at == "fc1/x/forward"; });
  ASSERT_NE(scales, found.series.end());
  EXPECT_EQ(scales->y[0], 1);
  EXPECT_LT(scales->y[1], 1);
  spec.policy = &policy_named("fp8-current");
  EXPECT_EQ(loss_number(quantization_harness().measure(spec), "quantization.first_saturated", "fc1/x/forward"), 0);
}

TEST(Quantization, RefusesPoliciesThatQuantiseNothing) {
  const auto refusal = quantization_harness().refuses(quantized_spec("amp-bf16"));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(*refusal, "policy amp-bf16 quantises no operands; fp8-delayed and others do");
  EXPECT_FALSE(quantization_harness().refuses(quantized_spec("amp-bf16+precision=fc2=mxfp8")));
}

// A policy of one layer quantises that layer.
TEST(Quantization, IsOfTheLayersThatQuantise) {
  const Findings found = quantization_harness().measure(quantized_spec("fp8-current+precision=fc1=amp-bf16,fc3=fp32"));
  EXPECT_EQ(loss_number(found, "quantization.operands", ""), 3);
  EXPECT_EQ(loss_number(found, "quantization.saturated", "fc2/dy/data"), 0);
}

TEST(Quantization, IsRefusedByWhatMeasuresProductsAsStored) {
  for (const char* policy : {"fp8-current", "amp-bf16+precision=fc=mxfp8"})
    EXPECT_TRUE(accumulation_harness().refuses(quantized_spec(policy, "linear/b4_i16_o8"))) << policy;
  EXPECT_FALSE(accumulation_harness().refuses(quantized_spec("amp-bf16", "linear/b4_i16_o8")));
}

// A linear layer has a bound of its error, which holds for numbers that are multiplied as they are stored.
TEST(Quantization, HasNoBoundOfALinearLayer) {
  const auto bound = [](const char* policy) {
    const Findings found = error_harness().measure(quantized_spec(policy, "linear/b4_i16_o8"));
    for (const Measurement& one : found.measurements)
      if (one.metric == "error.arithmetic.nmse" && one.at == "output") return one.bound.has_value();
    return false;
  };
  EXPECT_FALSE(bound("mxfp8"));
  EXPECT_TRUE(bound("amp-bf16"));
}

// error and range measure delayed scaling with scales of another batch, not with the scale 1 of the first step.
TEST(Quantization, IsMeasuredWithScalesByErrorAndRange) {
  for (const Harness& harness : {error_harness(), range_harness()}) {
    models::QuantizationLog log;
    (void)harness.measure(quantized_spec("fp8-delayed"));
    ASSERT_EQ(log.entries().size(), 18u) << harness.name;
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(log.entries()[i].scale, 1);
      EXPECT_NE(log.entries()[9 + i].scale, 1);
    }
  }
}

}  // namespace
}  // namespace halfmark::accuracy
