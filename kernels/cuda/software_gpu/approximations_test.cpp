// Results of approximate instructions against long double, in each choice. The bounds are written here once more, from
// the notes of each instruction in the PTX ISA 9.1.
#include "kernels/cuda/software_gpu/approximations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

using Wide = long double;

struct Row {
  const char* name;
  Function function;
  Wide (*exact)(Wide);
  float least, most;  // operands
  Wide relative, absolute;
  int ulp;
};
constexpr float kMax = std::numeric_limits<float>::max();
const Row kRows[] = {
    {"rcp", Function::rcp, [](Wide x) { return 1 / x; }, 0x1p-120F, 0x1p120F, 0, 0, 1},
    {"sqrt", Function::sqrt, [](Wide x) { return std::sqrt(x); }, 0x1p-126F, kMax, 0x1p-23L, 0, 0},
    {"rsqrt", Function::rsqrt, [](Wide x) { return 1 / std::sqrt(x); }, 0x1p-126F, kMax, std::exp2(-22.9L), 0, 0},
    {"sin", Function::sin, [](Wide x) { return std::sin(x); }, 0x1p-10F, 6.28F, 0, std::exp2(-20.5L), 0},
    {"cos of many turns", Function::cos, [](Wide x) { return std::cos(x); }, 6.3F, 314, 0, std::exp2(-14.7L), 0},
    {"lg2 near 1", Function::lg2, [](Wide x) { return std::log2(x); }, 0.50001F, 1.9999F, 0, 0x1p-22L, 0},
    {"lg2", Function::lg2, [](Wide x) { return std::log2(x); }, 2.0F, kMax, 0x1p-22L, 0, 0},
    {"ex2", Function::ex2, [](Wide x) { return std::exp2(x); }, 0x1p-30F, 127.5F, 0, 0, 2},
    {"tanh", Function::tanh, [](Wide x) { return std::tanh(x); }, 0x1p-20F, 20, 0x1p-11L, 0, 0},
};

// The distance in floats; both are positive.
int64_t floats_between(float a, float b) { return int64_t{std::bit_cast<int32_t>(b)} - std::bit_cast<int32_t>(a); }

class ApproximateInstructions : public SoftwareGpu {
 protected:
  void TearDown() override {
    set_approximation(Approximation::nearest);
    SoftwareGpu::TearDown();
  }
};

TEST_F(ApproximateInstructions, ErrByAsMuchAsTheIsaAllowsAndNoMore) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    for (const Approximation choice : {Approximation::above, Approximation::below, Approximation::scattered}) {
      set_approximation(choice);
      Wide lowest = 0, highest = 0, sum = 0;  // in parts of what is allowed
      int64_t count = 0;
      const auto last = std::bit_cast<uint32_t>(row.most);
      for (uint32_t code = std::bit_cast<uint32_t>(row.least); code < last; code += 99991, ++count) {
        const auto x = std::bit_cast<float>(code);
        const float y = approximate(row.function, x);
        const Wide exact = row.exact(x);
        const Wide part = row.ulp ? static_cast<Wide>(floats_between(static_cast<float>(exact), y)) / row.ulp
                                  : (y - exact) / (row.relative * std::fabs(exact) + row.absolute);
        lowest = std::min(lowest, part), highest = std::max(highest, part), sum += part;
      }
      ASSERT_GT(count, 100);
      const Wide within = 1 + 1e-6L;  // the bound in fp64 against long double
      EXPECT_GE(lowest, -within);
      EXPECT_LE(highest, within);
      if (choice == Approximation::above) {
        EXPECT_GT(sum / count, 0.4L);
      }
      if (choice == Approximation::below) {
        EXPECT_LT(sum / count, -0.4L);
      }
      if (choice == Approximation::scattered) {
        EXPECT_GT(highest, 0.9L);
        EXPECT_LT(lowest, -0.9L);
        EXPECT_LT(std::fabs(sum / count), 0.2L);
      }
    }
  }
}

TEST_F(ApproximateInstructions, QuotientsErrByTwoUnitsInTheLastPlace) {
  for (const Approximation choice : {Approximation::above, Approximation::below, Approximation::scattered}) {
    set_approximation(choice);
    int above = 0, below = 0;
    for (const auto quotient : {approximate_quotient, approximate_full_quotient})
      for (float a = 0x1.3p-20F; a < 0x1p20F; a *= 1.37F)
        for (float b = 0x1.7p-20F; b < 0x1p20F; b *= 1.61F) {
          const int64_t error = floats_between(static_cast<float>(static_cast<Wide>(a) / b), quotient(a, b));
          ASSERT_EQ(std::abs(error), 2) << a << " " << b;
          ++(error > 0 ? above : below);
        }
    EXPECT_EQ(above > 0, choice != Approximation::below);
    EXPECT_EQ(below > 0, choice != Approximation::above);
  }
}

TEST_F(ApproximateInstructions, GiveStatedResultsOfSpecialOperandsExactly) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Approximation choice : {Approximation::above, Approximation::below, Approximation::scattered}) {
    set_approximation(choice);
    for (const Function function : {Function::rcp, Function::sqrt, Function::rsqrt, Function::sin, Function::cos,
                                    Function::lg2, Function::ex2, Function::tanh})
      for (const float x : {0.0F, -0.0F, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        const auto stated = static_cast<float>(value_of(function, x)), y = approximate(function, x);
        EXPECT_TRUE(std::isnan(stated) ? std::isnan(y) : std::bit_cast<uint32_t>(y) == std::bit_cast<uint32_t>(stated))
            << static_cast<int>(function) << " of " << x << ": " << y;
      }
    EXPECT_EQ(approximate_quotient(1, 0x1.8p126F), 0);
    EXPECT_TRUE(std::isnan(approximate_quotient(kInfinity, 0x1.8p126F)));
    EXPECT_EQ(approximate_quotient(1, 0), kInfinity);
  }
}

TEST_F(ApproximateInstructions, OfKernelsFollowTheChoice) {
  const std::string body =
      "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nadd.s64 %rd4, %rd0, %rd2;\n"
      "ld.global.f32 %f0, [%rd3];\nex2.approx.ftz.f32 %f1, %f0;\nrcp.approx.ftz.f32 %f2, %f1;\n"
      "div.approx.f32 %f3, %f2, %f0;\ndiv.full.f32 %f4, %f3, %f0;\nst.global.f32 [%rd4], %f4;";
  const float* in = on_device(std::vector<float>{0.25F, 3, 5.5F, 60});
  float* out = on_device(std::vector<float>(4));
  const auto results = [&] {
    EXPECT_EQ(run_kernel(module_of_body(body), out, in, 4, 1, 4).status(), cudaSuccess);
    return from_device(out, 4);
  };
  const std::vector<float> nearest = results();
  set_approximation(Approximation::below);
  const std::vector<float> below = results();
  set_approximation(Approximation::above);
  const std::vector<float> above = results();
  for (size_t i = 0; i < nearest.size(); ++i) {
    // 2 ulp of ex2 and 1 of rcp against each other, then 2 of each quotient.
    EXPECT_GT(floats_between(nearest[i], above[i]), 0) << i;
    EXPECT_LT(floats_between(nearest[i], below[i]), 0) << i;
    EXPECT_LE(floats_between(below[i], above[i]), 24) << i;
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
