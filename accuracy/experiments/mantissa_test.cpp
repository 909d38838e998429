// Tests of the mantissa harness: errors halve with each bit, and formats have the bits that they have.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kMantissaSubjects[] = {"linear/b16_i64_o32", "conv2d/b2_c8_o8_s6_k3"};
constexpr const char* kMantissaPlaces[] = {"output", "gradient/input"};

// The slope of 7 rms errors of about a thousand values each: they vary by 3 %, or 0.05 in log2, over a range of 12 bits.
TEST(Mantissa, HalvesTheErrorWithEachBit) {
  for (const char* subject : kMantissaSubjects) {
    const Findings found = findings_of(mantissa_harness(), experiment_trial(subject, "fp32"));
    for (const char* place : kMantissaPlaces) {
      EXPECT_NEAR(number_at(found, "mantissa.slope", place), -1, 0.03) << subject << " " << place;
      // Two operands and the result are rounded. A rounding of numbers whose logarithms are evenly spread has the rms relative
      // error sqrt((1 - 1/4) / (6 log 2)) u = 0.42 u, three have 0.74 u, two 0.60 u.
      EXPECT_GT(curve_at(found, "mantissa.error", place, 10), 0.66 * 0x1p-11) << subject << " " << place;
      EXPECT_LT(curve_at(found, "mantissa.error", place, 10), 0.80 * 0x1p-11) << subject << " " << place;
    }
  }
}

TEST(Mantissa, GivesEachPolicyTheBitsOfItsFormat) {
  for (const char* subject : kMantissaSubjects)
    for (const auto& [policy, bits] :
         {std::pair{"fp16", 10.0}, std::pair{"amp-fp16", 10.0}, std::pair{"bf16", 7.0}, std::pair{"amp-bf16", 7.0}}) {
      const Findings found = findings_of(mantissa_harness(), experiment_trial(subject, policy));
      for (const char* place : kMantissaPlaces)  // the addition of the bias rounds once more
        EXPECT_NEAR(number_at(found, "mantissa.effective_bits", std::string("policy/") + place), bits, 0.5)
            << subject << " " << policy << " " << place;
    }
  const Findings wide = findings_of(mantissa_harness(), experiment_trial(kMantissaSubjects[0], "fp32"));
  EXPECT_GT(number_at(wide, "mantissa.effective_bits", "policy/output"), 19);
}

// Log-normal gradients of median 2^-22 and 3 octaves: Phi(-1) are below 2^-25, where an exponent of 5 bits ends.
TEST(Mantissa, LosesGradientsToFewExponentBits) {
  for (const char* policy : {"fp16", "amp-fp16", "fp32", "bf16"}) {
    const TrialSpec spec = experiment_trial(kMantissaSubjects[0], policy);
    const Findings found = findings_of(mantissa_harness(), spec);
    EXPECT_TRUE(meets_expectation(mantissa_harness(), spec, found)) << policy;
    const double expected = std::string(policy) == "fp16" ? 0.158655 : 0;
    EXPECT_NEAR(number_at(found, "exponent.zero", "policy/gradients"), expected, 5 * std::sqrt(0.1335 / 65536))
        << policy;
    if (std::string(policy) == "amp-fp16") continue;  // scaled
    EXPECT_NEAR(curve_at(found, "exponent.zero", "gradients", 5), 0.158655, 5 * std::sqrt(0.1335 / 65536)) << policy;
    for (const double bits : {6.0, 7.0, 8.0}) EXPECT_EQ(curve_at(found, "exponent.zero", "gradients", bits), 0) << bits;
  }
  // 4 exponent bits end at 2^8: Phi(-8/3) of the activations of median 1 are above.
  const Findings found = findings_of(mantissa_harness(), experiment_trial(kMantissaSubjects[0], "fp32"));
  EXPECT_NEAR(curve_at(found, "exponent.infinite", "activations", 4), 0.00383, 5 * std::sqrt(0.00383 / 65536));
}

TEST(Mantissa, NeedsALinearLayerOrAConvolution) {
  EXPECT_TRUE(refusal_of(mantissa_harness(), experiment_trial("softmax/b6_d12", "fp32")));
}

}  // namespace
}  // namespace halfmark::accuracy
