// The vector functions against libm's in double: every 97th float, the special values, and the same loop with each set of
// instructions.
#include "kernels/cpu/host/exponential.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/host/vectors.h"
#include "kernels/ops/activations.h"

namespace halfmark::kernels::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the result; of a subnormal result, in the least subnormal.
double units(float found, double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  return std::fabs(found - expected) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// The largest over floats from `begin` (towards larger magnitudes) to `end`.
double worst(float begin, float end, const std::function<float(float)>& f, const std::function<double(double)>& exact,
             double smallest = 0) {
  double most = 0;
  for (uint32_t code = std::bit_cast<uint32_t>(begin); code <= std::bit_cast<uint32_t>(end); code += 97) {
    const auto x = std::bit_cast<float>(code);
    const double expected = exact(x);
    if (std::fabs(expected) < smallest) continue;
    most = std::max(most, units(f(x), expected));
  }
  return most;
}

double exact_exp(double x) { return std::exp(x); }
double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double exact_tanh(double x) { return std::tanh(x); }
double exact_gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

TEST(VectorFunctions, StayWithinTheirStatedErrors) {
  constexpr double kNormal = std::numeric_limits<float>::min();
  const auto exp = [](float x) { return exp_of_nonpositive(x); };
  EXPECT_LE(worst(-0.0F, -87.0F, exp, exact_exp), 2);
  EXPECT_LE(worst(-87.0F, -104.0F, exp, exact_exp), 4);
  EXPECT_LE(worst(-0.0F, -104.0F, expm1_of_nonpositive, [](double x) { return std::expm1(x); }), 3);
  for (const auto& [begin, end] : {std::pair{0.0F, 88.0F}, {-0.0F, -86.0F}}) {
    EXPECT_LE(worst(
                  begin, end, [](float x) { return vector_sigmoid(x); }, exact_sigmoid),
              3);
    EXPECT_LE(worst(
                  begin, end, [](float x) { return vector_tanh(x); }, exact_tanh),
              3);
  }
  // A step of an activation's row is two units in the last place of numbers with the largest fraction.
  const double allowed = 2 * activations::Gelu::forward_steps;
  EXPECT_LE(worst(0.0F, 100.0F, vector_forward<activations::Gelu>, exact_gelu), allowed);
  EXPECT_LE(worst(-0.0F, -13.0F, vector_forward<activations::Gelu>, exact_gelu, kNormal), allowed);
}

TEST(VectorFunctions, KeepZerosInfinitiesAndNaN) {
  EXPECT_EQ(exp_of_nonpositive(0.0F), 1);
  EXPECT_EQ(exp_of_nonpositive(-kInfinity), 0);
  EXPECT_TRUE(std::isnan(exp_of_nonpositive(kNan)));
  EXPECT_EQ(vector_sigmoid(-kInfinity), 0);
  EXPECT_EQ(vector_sigmoid(kInfinity), 1);
  EXPECT_TRUE(std::isnan(vector_sigmoid(kNan)));
  EXPECT_EQ(vector_tanh(-kInfinity), -1);
  EXPECT_EQ(vector_tanh(kInfinity), 1);
  EXPECT_TRUE(std::signbit(vector_tanh(-0.0F)));
  EXPECT_TRUE(std::isnan(vector_tanh(kNan)));
  EXPECT_EQ(vector_forward<activations::Gelu>(kInfinity), kInfinity);
  EXPECT_EQ(vector_forward<activations::Gelu>(1e30F), 1e30F);
  EXPECT_EQ(vector_forward<activations::Gelu>(-1e30F), 0);
  EXPECT_TRUE(std::isnan(vector_forward<activations::Gelu>(kNan)));
  EXPECT_EQ(vector_backward<activations::Gelu>(1e30F, 3), 3);
  EXPECT_EQ(vector_backward<activations::Gelu>(-1e30F, 3), 0);
}

template <class Row>
void expect_equal_bits_with_all_instructions() {
  std::vector<float> x;
  for (uint32_t code = 0; code < 0xFFFF0000U; code += 65521) x.push_back(std::bit_cast<float>(code));
  std::vector<float> narrow(x.size()), wide(x.size()), medium(x.size());
  const auto loop = [&x](std::vector<float>& out) {
    return [&x, r = out.data()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        r[i] =
            vector_forward<Row>(x[static_cast<size_t>(i)]) + vector_backward<Row>(x[static_cast<size_t>(i)], 1.0F / 3);
    };
  };
  const auto count = static_cast<int64_t>(x.size());
  loop(narrow)(0, count);
  auto widest = loop(wide);
  parallel_for(count, 1000, widest);
#if defined(__x86_64__)
  if (widest_vectors() == Vectors::baseline) GTEST_SKIP() << "this CPU has no AVX2";
  auto middle = loop(medium);
  in_avx2(middle, 0, count);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(narrow[i]) && std::isnan(wide[i]) && std::isnan(medium[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(narrow[i]), std::bit_cast<uint32_t>(wide[i])) << Row::name << " of " << x[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(narrow[i]), std::bit_cast<uint32_t>(medium[i])) << Row::name << " of " << x[i];
  }
#endif
}

TEST(VectorFunctions, GiveTheSameBitsWithAllInstructions) {
  activations::All::each([]<class Row>() { expect_equal_bits_with_all_instructions<Row>(); });
}

}  // namespace
}  // namespace halfmark::kernels::host
