// The model of the tensor core against outputs of real GPUs, and directed cases for what random inputs do not reach.
#include "kernels/sim/tensor_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark {
namespace {

const TensorCore& hopper(DType operand, DType result) {
  const TensorCore* core = tensor_core("hopper", operand, result);
  EXPECT_NE(core, nullptr);
  return *core;
}
const TensorCore& f16_to_f32() { return hopper(DType::f16, DType::f32); }
const TensorCore& f16_to_f16() { return hopper(DType::f16, DType::f16); }
const TensorCore& bf16_to_f32() { return hopper(DType::bf16, DType::f32); }

// ---- outputs of GPUs: arXiv 2512.07004, model_validation of north-numerical-computing/MATLAB-tensor-core

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

std::vector<uint16_t> patterns(const std::string& hex) {
  std::vector<uint16_t> codes;
  for (size_t i = 0; i + 4 <= hex.size(); i += 4)
    codes.push_back(static_cast<uint16_t>(std::stoul(hex.substr(i, 4), nullptr, 16)));
  return codes;
}

class GpuOutputs : public testing::TestWithParam<const char*> {};

TEST_P(GpuOutputs, AreReproducedBitForBit) {
  const std::string file = std::string(HALFMARK_DATA) + "/tensor_core_hw/hw_" + GetParam() + "_k16.csv";
  std::ifstream stream(file);
  if (!stream) GTEST_SKIP() << "no outputs of real GPUs at " << file;
  const DType operand = std::string(GetParam()).ends_with("bf16") ? DType::bf16 : DType::f16;
  std::string line;
  std::getline(stream, line);
  const std::vector<std::string> header = split(line);
  int rows = 0, mismatches = 0;
  while (std::getline(stream, line)) {
    const std::vector<std::string> fields = split(line);
    ASSERT_EQ(fields.size(), header.size());
    const std::vector<uint16_t> a = patterns(fields[0]), b = patterns(fields[1]);
    ASSERT_EQ(a.size(), 16u);
    const auto c = static_cast<uint32_t>(std::stoul(fields[2], nullptr, 16));
    for (size_t column = 3; column < header.size(); ++column) {
      const bool half = header[column] == "d_f16";
      ASSERT_TRUE(half || header[column] == "d_f32") << header[column];
      // The f16 instruction was given c rounded to f16.
      const auto addend = half ? static_cast<uint32_t>(encode(DType::f16, decode(DType::f32, c))) : c;
      const uint32_t d = dot(hopper(operand, half ? DType::f16 : DType::f32), a, b, addend);
      mismatches += d != std::stoul(fields[column], nullptr, 16);
    }
    ++rows;
  }
  EXPECT_GE(rows, 600);
  EXPECT_EQ(mismatches, 0) << "of " << rows << " rows";
}

INSTANTIATE_TEST_SUITE_P(Hopper, GpuOutputs, testing::Values("H100_f16", "H100_bf16", "H200_f16", "H200_bf16"),
                         [](const auto& row) { return std::string(row.param); });

// ---- directed cases

uint16_t f16(double x) { return static_cast<uint16_t>(encode(DType::f16, x)); }
uint16_t bf16(double x) { return static_cast<uint16_t>(encode(DType::bf16, x)); }
uint32_t f32(double x) { return static_cast<uint32_t>(encode(DType::f32, x)); }

// One block of 16 with these products, the rest 1 times 0.
struct Products {
  std::vector<uint16_t> a, b;
};
Products block_of(DType dtype, std::initializer_list<std::pair<double, double>> factors, size_t k = 16) {
  Products p;
  for (const auto& [x, y] : factors)
    p.a.push_back(static_cast<uint16_t>(encode(dtype, x))), p.b.push_back(static_cast<uint16_t>(encode(dtype, y)));
  p.a.resize(k, static_cast<uint16_t>(encode(dtype, 1))), p.b.resize(k, 0);
  return p;
}
uint32_t dot_of(const TensorCore& core, std::initializer_list<std::pair<double, double>> factors, double c,
                size_t k = 16) {
  const Products p = block_of(core.operand, factors, k);
  return dot(core, p.a, p.b, static_cast<uint32_t>(encode(core.result, c)));
}

TEST(TensorCore, CutsTheResultTowardZero) {
  // 1 + 2^-24 + 2^-25 rounds up under nearest-even and is cut here; so is its negative.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {0x1p-12, 0x1p-12}, {0x1p-12, 0x1p-13}}, 0), f32(1));
  EXPECT_EQ(dot_of(f16_to_f32(), {{-1, 1}, {-0x1p-12, 0x1p-12}, {-0x1p-12, 0x1p-13}}, 0), f32(-1));
}

TEST(TensorCore, KeepsTwentyFiveFractionBitsInABlock) {
  // X - X + small: small survives down to 2^-25 of the largest exponent, and not below.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}, {0x1p-12, 0x1p-13}}, 0), f32(0x1p-25));
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}, {0x1p-13, 0x1p-13}}, 0), 0u);
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}, {0x1.8p-12, 0x1p-13}}, 0), f32(0x1p-25))
      << "cut, not rounded to 2^-24";
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}, {-0x1.8p-12, 0x1p-13}}, 0), f32(-0x1p-25))
      << "the magnitude is cut, not the two's complement";
}

TEST(TensorCore, AlignsProductsByTheirUnnormalisedExponent) {
  // 1.5 x 1.5 = 2.25 aligns as exponent 0: 2^-25 survives beside it, as it would not beside 2 x 1.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1.5, 1.5}, {-1.5, 1.5}, {0x1p-12, 0x1p-13}}, 0), f32(0x1p-25));
  EXPECT_EQ(dot_of(f16_to_f32(), {{2, 1}, {-2, 1}, {0x1p-12, 0x1p-13}}, 0), 0u);
}

TEST(TensorCore, AddsTheAddendInsideTheFusedSum) {
  // c cancels a product exactly, so that what is small survives: c is neither first nor last.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {0x1p-12, 0x1p-13}}, -1), f32(0x1p-25));
  EXPECT_EQ(dot_of(f16_to_f32(), {{0x1p-12, 0x1p-13}, {1, 1}}, -1), f32(0x1p-25));
}

TEST(TensorCore, DoesNotDependOnTheOrderWithinABlock) {
  const RandomKey key(5);
  for (uint64_t trial = 0; trial < 200; ++trial) {
    std::vector<uint16_t> a(16), b(16);
    for (uint64_t i = 0; i < 16; ++i)
      a[i] = f16(key.child(trial).normal(i)), b[i] = f16(key.child(trial).normal(i + 16));
    const uint32_t forward = dot(f16_to_f32(), a, b, f32(0.125));
    std::reverse(a.begin(), a.end()), std::reverse(b.begin(), b.end());
    ASSERT_EQ(dot(f16_to_f32(), a, b, f32(0.125)), forward);
  }
}

TEST(TensorCore, ChainsBlocksOfSixteenThroughTheRoundedResult) {
  // In one block -1 would cancel 1 and keep 2^-25; across the border of two blocks it was cut off before.
  std::vector<uint16_t> a(32, 0), b(32, f16(1));
  a[0] = f16(1), a[1] = f16(0x1p-12), b[1] = f16(0x1p-13), a[16] = f16(-1);
  EXPECT_EQ(dot(f16_to_f32(), a, b, 0), 0u);
  std::swap(a[16], a[15]);
  EXPECT_EQ(dot(f16_to_f32(), a, b, 0), f32(0x1p-25));
  // f16 results are rounded to f16 in between: 2048 + 1 is a tie to even, twice.
  std::vector<uint16_t> c(32, 0), d(32, f16(1));
  c[0] = f16(2048), c[1] = f16(1), c[16] = f16(1);
  EXPECT_EQ(dot(f16_to_f16(), c, d, 0), f16(2048));
}

TEST(TensorCore, FillsUpAShortBlockWithZeros) {
  const Products whole = block_of(DType::f16, {{1.25, 3}, {-0.5, 0x1p-10}});
  const std::vector<uint16_t> a(whole.a.begin(), whole.a.begin() + 2), b(whole.b.begin(), whole.b.begin() + 2);
  EXPECT_EQ(dot(f16_to_f32(), a, b, f32(7)), dot(f16_to_f32(), whole.a, whole.b, f32(7)));
  EXPECT_EQ(dot(f16_to_f32(), {}, {}, f32(7)), f32(7));
}

TEST(TensorCore, RoundsFp16ResultsStraightFromTheSum) {
  // Above the tie of 1 and 1 + 2^-10 by 2^-25: a stop at 24 bits would lose that and go to the even 1.
  EXPECT_EQ(dot_of(f16_to_f16(), {{1, 1}, {0x1p-5, 0x1p-6}, {0x1p-12, 0x1p-13}}, 0), f16(1 + 0x1p-10));
  EXPECT_EQ(dot_of(f16_to_f16(), {{1, 1}, {0x1p-5, 0x1p-6}}, 0), f16(1)) << "the tie itself";
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}, {0x1p-14, 0x1p-14}}, 0), f16(0x1p-24))
      << "just above half the smallest subnormal";
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}}, 0), 0u) << "half the smallest subnormal is a tie to zero";
}

TEST(TensorCore, HonoursSubnormals) {
  EXPECT_EQ(dot_of(f16_to_f32(), {{0x1p-24, 1}}, 0), f32(0x1p-24));
  EXPECT_EQ(dot_of(f16_to_f32(), {{0x1p-24, 0x1p-24}}, 0), f32(0x1p-48)) << "far above the cut at 2^-158";
  EXPECT_EQ(dot_of(f16_to_f32(), {}, 0x1p-149), 1u) << "a subnormal addend passes";
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p-100, 0x1p-49}}, 0), 1u);
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p-133, 1}}, 0), f32(0x1p-133)) << "bf16's smallest";
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p-100, 0x1.8p-49}}, 0), 1u) << "cut at 2^-149";
}

TEST(TensorCore, ProductsMayLeaveTheRangeAndCancelBack) {
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p100, 0x1p100}, {-0x1p100, 0x1p100}, {0x1p90, 0x1p90}}, 0),
            f32(0) | 0x7F800000u);
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p100, 0x1p100}, {-0x1p100, 0x1p100}, {0x1p88, 0x1p88}}, 0), f32(HUGE_VAL))
      << "2^176 is kept beside 2^200";
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p64, 0x1p63}, {-0x1p64, 0x1p63}, {0x1p60, 0x1p45}}, 0), f32(0x1p105));
}

TEST(TensorCore, OverflowsToInfinity) {
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p64, 0x1p64}}, 0), 0x7F800000u);
  EXPECT_EQ(dot_of(bf16_to_f32(), {{-0x1p64, 0x1p64}}, 0), 0xFF800000u);
  // The last bits below 2^128 are cut, and the largest number stays.
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p64, 0x1.FEp63}, {0x1p60, 0x1.FEp59}, {0x1p56, 0x1.FEp55}, {0x1p52, 0x1p51}}, 0),
            0x7F7FFFFFu);
  EXPECT_EQ(dot_of(f16_to_f16(), {{65504, 1}, {15.99, 1}}, 0), f16(65504));
  EXPECT_EQ(dot_of(f16_to_f16(), {{65504, 1}, {16, 1}}, 0), 0x7C00u);
  EXPECT_EQ(dot_of(f16_to_f16(), {{-65504, 1}, {-16, 1}}, 0), 0xFC00u);
}

TEST(TensorCore, AZeroIsPositive) {
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}}, 0), 0u);
  EXPECT_EQ(dot_of(f16_to_f32(), {}, -0.0), 0u);
  const std::vector<uint16_t> minus(16, 0x8000), one(16, f16(1));
  EXPECT_EQ(dot(f16_to_f32(), minus, one, 0x80000000u), 0u) << "all negative zeros";
  EXPECT_EQ(dot_of(f16_to_f16(), {{-0x1p-24, 0x1p-10}}, 0), 0u) << "a negative sum that underflows";
}

TEST(TensorCore, AZeroAmongTheTermsBoundsTheAlignment) {
  // f16 results, c = 0: the largest exponent is at least -21, so what lies below 2^-46 is cut off. Thus 2^-25 + 2^-46
  // is above the tie, 2^-25 + 2^-47 is cut to the tie and goes to zero.
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}, {0x1p-23, 0x1p-23}}, 0), f16(0x1p-24));
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}, {0x1p-24, 0x1p-23}}, 0), 0u);
  // A zero times something huge raises nothing.
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0, 0x1p127}, {0x1p-60, 0x1p-60}}, 0), f32(0x1p-120));
  // bf16, c = 0: bits below 2^-158 are cut, and nothing above is. The first two products are 2^-149 - 2^-158.
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p-75, 0x1p-75}, {0x1.FEp-76, 0x1p-75}}, 0), 0u);
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p-75, 0x1p-75}, {0x1.FEp-76, 0x1p-75}, {0x1p-79, 0x1p-79}}, 0), 1u);
  EXPECT_EQ(
      dot_of(bf16_to_f32(), {{0x1p-75, 0x1p-75}, {0x1.FEp-76, 0x1p-75}, {0x1p-80, 0x1p-79}, {0x1p-80, 0x1p-79}}, 0), 0u)
      << "2^-159 twice is lost";
}

TEST(TensorCore, WritesOneNanAndInfinitiesWithTheirSign) {
  const double inf = HUGE_VAL, nan = NAN;
  EXPECT_EQ(dot_of(f16_to_f32(), {{nan, 1}}, 0), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{-nan, 1}}, 0), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f16(), {{nan, 1}}, 0), 0x7FFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{inf, 0}}, 0), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{inf, 1}, {-inf, 1}}, 0), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{inf, 1}}, -inf), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}}, nan), 0x7FFFFFFFu);
  EXPECT_EQ(dot_of(f16_to_f32(), {{inf, -2}}, 5), 0xFF800000u);
  EXPECT_EQ(dot_of(f16_to_f32(), {{-inf, -inf}}, inf), 0x7F800000u);
  EXPECT_EQ(dot_of(f16_to_f16(), {{1, 1}}, -inf), 0xFC00u);
  // An infinity made by overflow in one block enters the next as c.
  std::vector<uint16_t> a(32, 0), b(32, 0);
  a[0] = bf16(0x1p100), b[0] = bf16(0x1p100), a[16] = bf16(-inf), b[16] = bf16(1);
  EXPECT_EQ(dot(bf16_to_f32(), a, b, 0), 0x7FFFFFFFu);
}

TEST(TensorCore, ThirtyTwoBitsWouldNotHoldTheSum) {
  // Sixteen products of almost 4 and an addend of almost 2, aligned at 2^-25.
  std::vector<uint16_t> a(16, f16(0x1.FFCp0)), b(16, f16(0x1.FFCp0));
  const double exact = 16 * 0x1.FFCp0 * 0x1.FFCp0 + 1.75;
  EXPECT_EQ(dot(f16_to_f32(), a, b, f32(1.75)),
            static_cast<uint32_t>(encode(DType::f32, exact, Rounding::toward_zero)));
}

TEST(TensorCore, EveryRowHasASourceAndAnArchitecture) {
  for (const TensorCore& core : tensor_cores()) {
    EXPECT_FALSE(core.source.empty()) << core.instruction;
    EXPECT_EQ(tensor_core(core.architecture, core.operand, core.result), &core);
    EXPECT_LE(core.products, 32) << "the model's block";
    bool known = false;
    for (const Architecture& architecture : architectures()) known = known || architecture.name == core.architecture;
    EXPECT_TRUE(known) << core.architecture;
  }
  EXPECT_EQ(tensor_core("hopper", DType::bf16, DType::f16), nullptr);
}

// ---- the device

TEST(SimDevice, ItsMatmulIsTheChainOfBlocks) {
  const auto device = open_device("sim:hopper");
  EXPECT_EQ(device->numerics(), "instruction-exact");
  const int64_t m = 3, n = 5, k = 50;
  const RandomKey key(1);
  std::vector<double> av(static_cast<size_t>(m * k)), bv(static_cast<size_t>(n * k));
  for (size_t i = 0; i < av.size(); ++i) av[i] = key.normal(i);
  for (size_t i = 0; i < bv.size(); ++i) bv[i] = key.normal(1000 + i);
  const Tensor a = Tensor::from(*device, {m, k}, DType::f16, av), b = Tensor::from(*device, {n, k}, DType::f16, bv);
  for (const DType result : {DType::f32, DType::f16}) {
    Tensor out(*device, {m, n}, result);
    const Format& sum = format_of(result);
    const Matmul op{.a = a, .b = b, .out = out, .transpose_b = true, .math = {.accumulate = sum}};
    EXPECT_EQ(chosen(op).name, "tensor-core");
    run(op);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const std::span<const uint16_t> row(a.as<uint16_t>() + i * k, static_cast<size_t>(k)),
            column(b.as<uint16_t>() + j * k, static_cast<size_t>(k));
        const uint32_t expected = dot(hopper(DType::f16, result), row, column, 0);
        const auto at = static_cast<size_t>(i * n + j);
        EXPECT_EQ(result == DType::f32 ? out.as<uint32_t>()[at] : out.as<uint16_t>()[at], expected);
      }
  }
}

TEST(SimDevice, BetaIsTheAddendOfTheFirstBlock) {
  const auto device = open_device("sim:hopper");
  const Tensor a = Tensor::from(*device, {1, 2}, DType::f16, std::vector<double>{1, 0x1p-12});
  const Tensor b = Tensor::from(*device, {2, 1}, DType::f16, std::vector<double>{1, 0x1p-13});
  Tensor out = Tensor::from(*device, {1, 1}, DType::f32, std::vector<double>{-1});
  run(Matmul{.a = a, .b = b, .out = out, .beta = 1});
  EXPECT_EQ(out.values()[0], 0x1p-25) << "inside the fused sum; added afterwards it would be 0";
}

TEST(SimDevice, ANarrowOutIsRoundedOnceMoreToNearestEven) {
  const auto device = open_device("sim:hopper");
  const Tensor a = Tensor::from(*device, {1, 2}, DType::f16, std::vector<double>{1, 0x1p-5});
  for (const double sign : {1.0, -1.0}) {
    const Tensor b = Tensor::from(*device, {2, 1}, DType::f16, std::vector<double>{sign, sign * 0x1p-6});
    Tensor out(*device, {1, 1}, DType::f16);
    run(Matmul{.a = a, .b = b, .out = out});
    EXPECT_EQ(out.values()[0], sign) << "1 + 2^-11 is a tie in f16; the fp32 result before it is exact";
  }
}

TEST(SimDevice, SplitKMakesChainsOfItsOwn) {
  const auto device = open_device("sim:hopper");
  std::vector<double> values(32, 0);
  values[0] = 2048, values[16] = 1, values[17] = 0.5;
  const Tensor a = Tensor::from(*device, {1, 32}, DType::f16, values),
               b = Tensor::from(*device, {32, 1}, DType::f16, std::vector<double>(32, 1.0));
  Tensor out(*device, {1, 1}, DType::f32);
  run(Matmul{.a = a, .b = b, .out = out, .math = {.partial = kFp16, .split_k = 2}});
  EXPECT_EQ(out.values()[0], 2049.5);
  run(Matmul{.a = a, .b = b, .out = out, .math = {.accumulate = kFp16, .partial = kFp16, .split_k = 2}});
  EXPECT_EQ(out.values()[0], 2050) << "2048 + 1.5 in fp16";
}

TEST(SimDevice, Fp32AndTf32FallToTheReferenceRowWithAReason) {
  const auto device = open_device("sim:hopper");
  const Tensor a = Tensor::zeros(*device, {2, 2}, DType::f32), b = Tensor::zeros(*device, {2, 2}, DType::f32);
  Tensor out(*device, {2, 2}, DType::f32);
  for (const Format& multiply : {kFp32, kTf32}) {
    const Matmul op{.a = a, .b = b, .out = out, .math = {.multiply = multiply}};
    EXPECT_EQ(chosen(op).name, "reference");
    EXPECT_EQ(device->kernels().of<Matmul>()[0].refuses(*device, op),
              "no instruction for f32 times f32 summed in fp32");
  }
}

TEST(SimDevice, AnArchitectureThatIsNotModelledIsAnError) { EXPECT_THROW(open_device("sim:kepler"), Error); }

}  // namespace
}  // namespace halfmark
