// The fp32 formulas of GPUs against libm in double, with exact functions in the place of the GPU's approximate ones: every
// 1009th float. The largest errors in units of 2^-24: of all floats, GELU 7.7, its gradient 2.6, cross-entropy 3.5; of every
// fifth, sigmoid 3.4 and its logarithm 3.5.
#include "kernels/ops/formulas_fp32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace halfmark::kernels::formulas {
namespace {

constexpr double kFp32Unit = 0x1p-24, kFp32Smallest = 0x1p-149;
constexpr float kFp32Infinity = std::numeric_limits<float>::infinity(),
                kFp32Nan = std::numeric_limits<float>::quiet_NaN();

// f(x) for positive floats up to `most`, and their negatives, until a test fails.
void each_float(float most, auto&& f) {
  for (uint32_t code = 0; code <= std::bit_cast<uint32_t>(most) && !testing::Test::HasFatalFailure(); code += 1009)
    f(std::bit_cast<float>(code)), f(-std::bit_cast<float>(code));
}

TEST(Fp32Formulas, NormalShareAndItsSlopeStayWithinTheirErrors) {
  each_float(100, [](float x) {
    const double wide = x, share = 0.5 * std::erfc(-wide * 0.70710678118654752440);
    // A share below the normal numbers is rounded before x multiplies it.
    ASSERT_NEAR(gelu_fp32(x), wide * share,
                8 * kFp32Unit * std::fabs(wide * share) + kFp32Smallest * (1 + std::fabs(wide)))
        << x;
    const double slope = share + wide * 0.39894228040143267794 * std::exp(-0.5 * wide * wide);
    ASSERT_NEAR(gelu_backward_fp32(x, 1), slope, 3 * kFp32Unit * std::max(1.0, std::fabs(slope))) << x;
  });
}

// With tanh: 2 roundings for each of the steps that activations.h states; exp multiplies the error of its argument.
TEST(Fp32Formulas, GeluWithTanhStaysWithinItsSteps) {
  each_float(100, [](float x) {
    const double wide = x, u = 1.59576912160573071176 * (wide + 0.044715 * wide * wide * wide),
                 e = std::exp(-std::fabs(u)), value = wide * (u < 0 ? e : 1) / (1 + e);
    ASSERT_NEAR(x * sigmoid_fp32(gelu_tanh_argument_fp32(x)), value,
                404 * kFp32Unit * std::fabs(value) + kFp32Smallest * (1 + std::fabs(wide)))
        << x;
  });
}

TEST(Fp32Formulas, SigmoidAndItsLogarithmStayWithinTheirErrors) {
  each_float(100, [](float x) {
    const double wide = x, e = std::exp(-std::fabs(wide)), share = (x < 0 ? e : 1) / (1 + e);
    ASSERT_NEAR(sigmoid_fp32(x), share, 4 * kFp32Unit * share + kFp32Smallest) << x;
    const Shares both = shares_fp32(x);
    ASSERT_EQ(both.high, sigmoid_fp32(x));
    ASSERT_EQ(both.low, sigmoid_fp32(-x));
    const double minus_log = std::log1p(e) + std::max(-wide, 0.0);
    ASSERT_NEAR(minus_log_sigmoid_fp32(x), minus_log, 4 * kFp32Unit * minus_log + kFp32Smallest) << x;
  });
}

TEST(Fp32Formulas, CrossEntropyOfEveryShareStaysWithinItsError) {
  each_float(1, [](float x) {
    if (std::signbit(x)) return;
    for (const float y : {0.0F, 0.25F, 1.0F}) {
      const double wide = x, high = std::max(std::log(wide), -100.0), low = std::max(std::log1p(-wide), -100.0),
                   value = -y * high - (1 - y) * low;
      ASSERT_NEAR(cross_entropy_fp32(x, y), value, 4 * kFp32Unit * value + kFp32Smallest) << x << " " << y;
    }
  });
}

TEST(Fp32Formulas, KeepInfinitiesAndNaN) {
  EXPECT_EQ(gelu_fp32(kFp32Infinity), kFp32Infinity);
  EXPECT_EQ(gelu_fp32(1e30F), 1e30F);
  EXPECT_EQ(gelu_fp32(-1e30F), 0);
  EXPECT_TRUE(std::isnan(gelu_fp32(-kFp32Infinity)));  // infinity times 0, as the formula says
  EXPECT_TRUE(std::isnan(gelu_fp32(kFp32Nan)));
  EXPECT_EQ(gelu_backward_fp32(1e30F, 3), 3);
  EXPECT_EQ(gelu_backward_fp32(-1e30F, 3), 0);
  for (const float x : {kFp32Infinity, -kFp32Infinity, kFp32Nan})
    EXPECT_TRUE(std::isnan(gelu_backward_fp32(x, 1))) << x;
  EXPECT_EQ(sigmoid_fp32(kFp32Infinity), 1);
  EXPECT_EQ(sigmoid_fp32(-kFp32Infinity), 0);
  EXPECT_TRUE(std::isnan(sigmoid_fp32(kFp32Nan)));
  EXPECT_TRUE(std::isnan(shares_fp32(kFp32Nan).high) && std::isnan(shares_fp32(kFp32Nan).low));
  EXPECT_EQ(minus_log_sigmoid_fp32(kFp32Infinity), 0);
  EXPECT_EQ(minus_log_sigmoid_fp32(-kFp32Infinity), kFp32Infinity);
  EXPECT_TRUE(std::isnan(minus_log_sigmoid_fp32(kFp32Nan)));
  for (const float x : {-kFp32Infinity, -1.0F, -0x1p-149F, 1.0000001F, 2.0F, kFp32Infinity, kFp32Nan})
    for (const float y : {0.0F, 0.25F, 1.0F}) EXPECT_TRUE(std::isnan(cross_entropy_fp32(x, y))) << x << " " << y;
  EXPECT_EQ(cross_entropy_fp32(0, 1), 100);
  EXPECT_EQ(cross_entropy_fp32(1, 0), 100);
  EXPECT_EQ(cross_entropy_fp32(0, 0), 0);
  EXPECT_EQ(cross_entropy_fp32(1, 1), 0);
}

}  // namespace
}  // namespace halfmark::kernels::formulas
