// Directed cases: each shows one property of tensor cores, with numbers that can be checked by hand. Random inputs:
// tensor_core_adversarial_test.cpp; outputs of GPUs: tensor_core_data_test.cpp.
#include "kernels/sim/tensor_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

struct Unit {  // a row of the table and types it supports
  const TensorCore* core;
  DotTypes types;
  size_t depth() const { return static_cast<size_t>(core->depth()); }
};

Unit unit(std::string_view architecture, MatrixInstruction instruction, const Format& operand, const Format& result,
          Scaling scaling = {}) {
  const DotTypes types{operand, operand, result, result, scaling};
  std::string why;
  const TensorCore* core = find_core(tensor_cores(), architecture, instruction, types, &why);
  if (!core) throw Error(why);
  return {core, types};
}
Unit hopper(const Format& operand, const Format& result) {
  return unit("hopper", MatrixInstruction::mma_m16n8k16, operand, result);
}
Unit f16_to_f32() { return hopper(kFp16, kFp32); }
Unit f16_to_f16() { return hopper(kFp16, kFp16); }
Unit bf16_to_f32() { return hopper(kBf16, kFp32); }

uint64_t f16(double x) { return encode(DType::f16, x); }
uint64_t bf16(double x) { return encode(DType::bf16, x); }
uint64_t f32(double x) { return encode(DType::f32, x); }

uint64_t dot(const Unit& unit, std::span<const uint64_t> a, std::span<const uint64_t> b, uint64_t c,
             std::span<const uint8_t> scale_a = {}, std::span<const uint8_t> scale_b = {}) {
  return dot(*unit.core, unit.types, a, b, c, scale_a, scale_b);
}

uint64_t operand_code(const Format& format, double x) {
  return format == kTf32 ? encode(DType::f32, x) : encode_format(format, x);
}

// One instruction with these products, the rest 1 times 0.
struct Products {
  std::vector<uint64_t> a, b;
};
using Factors = std::initializer_list<std::pair<double, double>>;
Products products_of(const Unit& unit, Factors factors) {
  Products p;
  for (const auto& [x, y] : factors)
    p.a.push_back(operand_code(unit.types.a, x)), p.b.push_back(operand_code(unit.types.b, y));
  p.a.resize(unit.depth(), operand_code(unit.types.a, 1)), p.b.resize(unit.depth(), 0);
  return p;
}
uint64_t dot_of(const Unit& unit, Factors factors, double c) {
  const Products p = products_of(unit, factors);
  return dot(unit, p.a, p.b, encode_format(unit.types.c, c));
}

TEST(TensorCore, CutsTheResultTowardZero) {
  // 1 + 2^-24 + 2^-25 rounds up under nearest-even and is truncated here; so is its negative.
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
      << "the magnitude is truncated, not the two's complement";
}

TEST(TensorCore, AlignsProductsByTheirUnnormalisedExponent) {
  // 1.5 x 1.5 = 2.25 aligns as exponent 0: 2^-25 survives beside it, which it would not beside 2 x 1.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1.5, 1.5}, {-1.5, 1.5}, {0x1p-12, 0x1p-13}}, 0), f32(0x1p-25));
  EXPECT_EQ(dot_of(f16_to_f32(), {{2, 1}, {-2, 1}, {0x1p-12, 0x1p-13}}, 0), 0u);
}

TEST(TensorCore, AddsTheAddendInsideTheFusedSum) {
  // c cancels a product exactly, so a small term survives: c is neither first nor last.
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {0x1p-12, 0x1p-13}}, -1), f32(0x1p-25));
  EXPECT_EQ(dot_of(f16_to_f32(), {{0x1p-12, 0x1p-13}, {1, 1}}, -1), f32(0x1p-25));
}

TEST(TensorCore, DoesNotDependOnTheOrderWithinABlock) {
  const RandomKey key(5);
  for (uint64_t trial = 0; trial < 200; ++trial) {
    std::vector<uint64_t> a(16), b(16);
    for (uint64_t i = 0; i < 16; ++i)
      a[i] = f16(key.child(trial).normal(i)), b[i] = f16(key.child(trial).normal(i + 16));
    const uint64_t forward = dot(f16_to_f32(), a, b, f32(0.125));
    std::reverse(a.begin(), a.end()), std::reverse(b.begin(), b.end());
    ASSERT_EQ(dot(f16_to_f32(), a, b, f32(0.125)), forward);
  }
}

TEST(TensorCore, ChainsBlocksOfSixteenThroughTheRoundedResult) {
  // In one block -1 would cancel 1 and keep 2^-25; across the boundary of two blocks it was already truncated.
  std::vector<uint64_t> a(32, 0), b(32, f16(1));
  a[0] = f16(1), a[1] = f16(0x1p-12), b[1] = f16(0x1p-13), a[16] = f16(-1);
  EXPECT_EQ(dot(f16_to_f32(), a, b, 0), 0u);
  std::swap(a[16], a[15]);
  EXPECT_EQ(dot(f16_to_f32(), a, b, 0), f32(0x1p-25));
  // f16 results are rounded to f16 in between: 2048 + 1 is a tie to even, twice.
  std::vector<uint64_t> c(32, 0), d(32, f16(1));
  c[0] = f16(2048), c[1] = f16(1), c[16] = f16(1);
  EXPECT_EQ(dot(f16_to_f16(), c, d, 0), f16(2048));
}

TEST(TensorCore, FillsUpAShortBlockWithZeros) {
  const Products whole = products_of(f16_to_f32(), {{1.25, 3}, {-0.5, 0x1p-10}});
  const std::vector<uint64_t> a(whole.a.begin(), whole.a.begin() + 2), b(whole.b.begin(), whole.b.begin() + 2);
  EXPECT_EQ(dot(f16_to_f32(), a, b, f32(7)), dot(f16_to_f32(), whole.a, whole.b, f32(7)));
  EXPECT_EQ(dot(f16_to_f32(), {}, {}, f32(7)), f32(7));
}

TEST(TensorCore, RoundsFp16ResultsStraightFromTheSum) {
  // Above the tie of 1 and 1 + 2^-10 by 2^-25: rounding to 24 bits first would lose that and go to the even 1.
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
  // The last bits below 2^128 are truncated, and the largest number stays.
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0x1p64, 0x1.FEp63}, {0x1p60, 0x1.FEp59}, {0x1p56, 0x1.FEp55}, {0x1p52, 0x1p51}}, 0),
            0x7F7FFFFFu);
  EXPECT_EQ(dot_of(f16_to_f16(), {{65504, 1}, {15.99, 1}}, 0), f16(65504));
  EXPECT_EQ(dot_of(f16_to_f16(), {{65504, 1}, {16, 1}}, 0), 0x7C00u);
  EXPECT_EQ(dot_of(f16_to_f16(), {{-65504, 1}, {-16, 1}}, 0), 0xFC00u);
}

TEST(TensorCore, AZeroIsPositive) {
  EXPECT_EQ(dot_of(f16_to_f32(), {{1, 1}, {-1, 1}}, 0), 0u);
  EXPECT_EQ(dot_of(f16_to_f32(), {}, -0.0), 0u);
  const std::vector<uint64_t> minus(16, 0x8000), one(16, f16(1));
  EXPECT_EQ(dot(f16_to_f32(), minus, one, 0x80000000u), 0u) << "all negative zeros";
  EXPECT_EQ(dot_of(f16_to_f16(), {{-0x1p-24, 0x1p-10}}, 0), 0u) << "a negative sum that underflows";
}

TEST(TensorCore, AZeroAmongTheTermsBoundsTheAlignment) {
  // f16 results, c = 0: the largest exponent is at least -21, so bits below 2^-46 are truncated. Thus 2^-25 + 2^-46 is
  // above the tie; 2^-25 + 2^-47 is truncated to the tie and goes to zero.
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}, {0x1p-23, 0x1p-23}}, 0), f16(0x1p-24));
  EXPECT_EQ(dot_of(f16_to_f16(), {{0x1p-12, 0x1p-13}, {0x1p-24, 0x1p-23}}, 0), 0u);
  // A zero times a huge number raises nothing.
  EXPECT_EQ(dot_of(bf16_to_f32(), {{0, 0x1p127}, {0x1p-60, 0x1p-60}}, 0), f32(0x1p-120));
  // bf16, c = 0: bits below 2^-158 are truncated, and none above. The first two products are 2^-149 - 2^-158.
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
  // An infinity from overflow in one block enters the next as c.
  std::vector<uint64_t> a(32, 0), b(32, 0);
  a[0] = bf16(0x1p100), b[0] = bf16(0x1p100), a[16] = bf16(-inf), b[16] = bf16(1);
  EXPECT_EQ(dot(bf16_to_f32(), a, b, 0), 0x7FFFFFFFu);
}

TEST(TensorCore, ThirtyTwoBitsWouldNotHoldTheSum) {
  // Sixteen products of almost 4 and an addend of almost 2, aligned at 2^-25.
  std::vector<uint64_t> a(16, f16(0x1.FFCp0)), b(16, f16(0x1.FFCp0));
  const double exact = 16 * 0x1.FFCp0 * 0x1.FFCp0 + 1.75;
  EXPECT_EQ(dot(f16_to_f32(), a, b, f32(1.75)), encode(DType::f32, exact, Rounding::toward_zero));
}

// Properties of the other rows.

TEST(TensorCore, VoltaKeepsTwentyThreeBitsAndTuringTwentyFour) {
  const auto left_over = [](const Unit& core, double small) {
    return dot_of(core, {{1, 1}, {-1, 1}, {small, 0x1p-12}}, 0);
  };
  using enum MatrixInstruction;
  const Unit volta = unit("volta", mma_m8n8k4, kFp16, kFp32), turing = unit("turing", mma_m16n8k8, kFp16, kFp32);
  EXPECT_EQ(left_over(volta, 0x1p-11), f32(0x1p-23));
  EXPECT_EQ(left_over(volta, 0x1p-12), 0u);
  EXPECT_EQ(left_over(turing, 0x1p-12), f32(0x1p-24));
  EXPECT_EQ(left_over(turing, 0x1p-13), 0u);
}

TEST(TensorCore, AmpereChainsTwoBlocksOfEightInOneInstruction) {
  const Unit ampere = unit("ampere", MatrixInstruction::mma_m16n8k16, kFp16, kFp32);
  std::vector<uint64_t> a(16, 0), b(16, f16(1));
  a[0] = f16(1), a[1] = f16(0x1p-12), b[1] = f16(0x1p-12), a[8] = f16(-1);
  EXPECT_EQ(dot(ampere, a, b, 0), 0u) << "1 + 2^-24 is cut to fp32 before the second block";
  std::swap(a[8], a[7]);
  EXPECT_EQ(dot(ampere, a, b, 0), f32(0x1p-24));
}

TEST(TensorCore, VoltaWidensAnFp16AddendBeforeItIsAligned) {
  const DotTypes mixed{kFp16, kFp16, kFp16, kFp32};
  const TensorCore* core = find_core(tensor_cores(), "volta", MatrixInstruction::mma_m8n8k4, mixed);
  ASSERT_NE(core, nullptr);
  // fp16's smallest number, 2^-24, has the exponent -24 in fp32 and -14 in fp16. From -24 on 23 bits reach down to
  // 2^-47, from -14 on only to 2^-37.
  const std::vector<uint64_t> a{f16(0x1p-20), 0, 0, 0}, b{f16(0x1p-20), 0, 0, 0};
  EXPECT_EQ(dot(*core, mixed, a, b, 1), f32(0x1p-24 + 0x1p-40));
}

TEST(TensorCore, Tf32IsARegisterWhoseLowBitsAreDropped) {
  const Unit tf32 = unit("hopper", MatrixInstruction::mma_m16n8k8, kTf32, kFp32);
  const auto times_one = [&](uint64_t code) {
    std::vector<uint64_t> a(8, 0), b(8, f32(1));
    a[0] = code;
    return dot(tf32, a, b, 0);
  };
  EXPECT_EQ(times_one(0x3F801FFF), f32(1)) << "cut, not rounded";
  EXPECT_EQ(times_one(0x7F7FFFFF), 0x7F7FE000u) << "rounding would give infinity";
  EXPECT_EQ(times_one(0x00003FFF), 0x00002000u) << "subnormal";
  EXPECT_EQ(times_one(0x7F800001), 0x7F800000u) << "a NaN whose payload is in the low bits";
  EXPECT_EQ(times_one(0x7F802000), 0x7FFFFFFFu);
}

TEST(TensorCore, Fp8OnAdaAndHopperWgmmaKeepsThirteenBitsOfEverythingAlsoOfC) {
  for (const Unit& core : {unit("ada", MatrixInstruction::mma_m16n8k32, kE4m3, kFp32),
                           unit("hopper", MatrixInstruction::wgmma_k32, kE4m3, kFp32)}) {
    EXPECT_EQ(dot_of(core, {}, 1 + 0x1p-13), f32(1 + 0x1p-13));
    EXPECT_EQ(dot_of(core, {}, 1 + 0x1p-14), f32(1)) << "although all products are zero";
    EXPECT_EQ(dot_of(core, {}, -0x1p-139), f32(-0x1p-139));
    EXPECT_EQ(dot_of(core, {}, 0x1.8p-139), f32(0x1p-139));
    EXPECT_EQ(dot_of(core, {}, -0x1p-140), 0u);
    EXPECT_EQ(dot_of(core, {{256, 1}, {-256, 1}, {0x1p-5, 1}}, 0), f32(0x1p-5)) << "2^-13 of the largest";
    EXPECT_EQ(dot_of(core, {{256, 1}, {-256, 1}, {0x1p-6, 1}}, 0), 0u);
  }
}

TEST(TensorCore, MmaSyncFp8OnHopperInterleavesKAndAddsCAfterwards) {
  const Unit core = unit("hopper", MatrixInstruction::mma_m16n8k32, kE5m2, kFp32);
  const auto with = [&](size_t first, size_t second, size_t third, double c) {
    std::vector<uint64_t> a(32, 0), b(32, encode(DType::e5m2, 1));
    a[first] = encode(DType::e5m2, 0x1p15), a[second] = encode(DType::e5m2, -0x1p15),
    a[third] = encode(DType::e5m2, 0x1p-10);
    return dot(core, a, b, f32(c));
  };
  EXPECT_EQ(with(0, 29, 1, 0), f32(0x1p-10)) << "k = 0, 1 and 29 meet in the first block";
  EXPECT_EQ(with(0, 2, 1, 0), 0u) << "k = 2 comes after 2^15 + 2^-10 was cut to fp32";
  // c is added to the sum of the products, to nearest even: 1 + 2^-10 2^-14 would be truncated inside.
  EXPECT_EQ(with(0, 29, 1, 0x1.FFFFFEp13), f32(0x1p14)) << "2^14 - 2^-10 + 2^-10";
  EXPECT_EQ(with(0, 29, 1, 0x1.000002p14), f32(0x1.000004p14)) << "a tie to even; truncation would leave it";
}

// Block scales.

TEST(TensorCore, ScalesRaiseTheExponentsOfProductsAndNotOfC) {
  const Unit core = unit("blackwell", MatrixInstruction::tcgen05_k32, kE4m3, kFp32, {DType::e8m0, 32});
  const Products p = products_of(core, {{1.5, 2}});
  const auto scaled = [&](uint8_t sa, uint8_t sb, double c) {
    return dot(core, p.a, p.b, f32(c), std::vector<uint8_t>{sa}, std::vector<uint8_t>{sb});
  };
  EXPECT_EQ(scaled(127, 127, 1), f32(4));
  EXPECT_EQ(scaled(130, 126, 1), f32(13));
  EXPECT_EQ(scaled(0, 254, 1), f32(4)) << "0 is 2^-127";
  EXPECT_EQ(scaled(0, 127, 0), f32(3 * 0x1p-127));
  EXPECT_EQ(scaled(255, 127, 1), 0x7FFFFFFFu);
}

TEST(TensorCore, Fp4GroupsKeepThirtyFiveBitsBelowTheLargestScale) {
  const Unit core = unit("blackwell-rtx", MatrixInstruction::mma_m16n8k64, kE2m1, kFp32, {DType::e8m0, 16});
  std::vector<uint64_t> a(64, 0), b(64, encode_format(kE2m1, 1));
  a[0] = encode_format(kE2m1, 1), a[16] = encode_format(kE2m1, -1), a[32] = encode_format(kE2m1, 0.5);
  const auto scaled = [&](int low) {
    const std::vector<uint8_t> sa{127, 127, static_cast<uint8_t>(127 + low), 127}, sb(4, 127);
    return dot(core, a, b, 0, sa, sb);
  };
  EXPECT_EQ(scaled(-34), f32(0x1p-35));
  EXPECT_EQ(scaled(-35), 0u);
  // The last group is all zero: its scale raises nothing. A group that cancels does.
  std::vector<uint8_t> sa{127, 127, 127 - 34, 254}, sb(4, 127);
  EXPECT_EQ(dot(core, a, b, 0, sa, sb), f32(0x1p-35));
  a[48] = encode_format(kE2m1, 2), a[49] = encode_format(kE2m1, -2);
  EXPECT_EQ(dot(core, a, b, 0, sa, sb), 0u);
}

TEST(TensorCore, Ue4m3ScalesHaveNoSignAndSubnormals) {
  const Unit core = unit("blackwell", MatrixInstruction::tcgen05_k64, kE2m1, kFp32, {DType::e4m3, 16});
  const Products p = products_of(core, {{6, 6}});
  const auto scaled = [&](uint8_t sa, uint8_t sb) {
    return dot(core, p.a, p.b, 0, std::vector<uint8_t>{sa, 0, 0, 0}, std::vector<uint8_t>{sb, 0, 0, 0});
  };
  EXPECT_EQ(scaled(0x38, 0x38), f32(36));
  EXPECT_EQ(scaled(0xB8, 0x38), f32(36)) << "the sign bit is ignored";
  EXPECT_EQ(scaled(0x01, 0x38), f32(36 * 0x1p-9));
  EXPECT_EQ(scaled(0x3F, 0x3F), f32(36 * 1.875 * 1.875));
  EXPECT_EQ(scaled(0x7F, 0x38), 0x7FFFFFFFu);
}

TEST(TensorCore, Fp64IsAChainOfIeeeMultiplyAdds) {
  const Unit core = unit("ampere", MatrixInstruction::mma_m8n8k4, kFp64, kFp64);
  const double tiny = 0x1p-27, a0 = 1 + tiny;
  // (1 + 2^-27)^2 - (1 + 2^-26) = 2^-54, which a rounded product would lose.
  EXPECT_EQ(dot_of(core, {{a0, a0}}, -(1 + 2 * tiny)), encode(DType::f64, 0x1p-54));
  EXPECT_EQ(dot_of(core, {{1, 1}, {1, 0x1p-53}, {1, 0x1p-53}, {-1, 1}}, 0), 0u) << "each rounded, in increasing k";
  EXPECT_EQ(dot_of(core, {{1, 0x1p-53}, {1, 0x1p-53}, {1, 1}, {-1, 1}}, 0), encode(DType::f64, 0x1p-52));
}

// The table.

TEST(TensorCore, EverySourceSaysWhichVersionOfItWasReadAndIsUsed) {
  for (const InstructionSource& source : instruction_sources()) {
    const auto says = [&](std::string_view mark) { return source.citation.find(mark) != source.citation.npos; };
    EXPECT_TRUE(says(" @ ") || says("doi:") || says("CUDA 13.0") || says("version not recorded")) << source.citation;
    EXPECT_TRUE(std::ranges::any_of(
        tensor_cores(), [&](const TensorCore& core) { return core.source.find(source.key) != core.source.npos; }))
        << source.key << " is not named by any row";
  }
}

TEST(TensorCore, EveryRowHasASourceAndAnArchitecture) {
  for (const TensorCore& core : tensor_cores()) {
    const auto names = [&](const InstructionSource& source) {
      return core.source.find(source.key) != core.source.npos;
    };
    EXPECT_TRUE(std::ranges::any_of(instruction_sources(), names)) << text_of(core) << ": " << core.source;
    EXPECT_TRUE(std::ranges::any_of(architectures(), [&](const Architecture& a) {
      return a.name == core.architecture;
    })) << core.architecture;
    EXPECT_EQ(core.depth() % std::max(1, core.scaling.block), 0) << text_of(core) << ": whole scales";
  }
}

TEST(TensorCore, WhatAnArchitectureLacksIsRefusedWithAReason) {
  std::string why;
  const DotTypes fp8{kE4m3, kE4m3, kFp32, kFp32}, bf16_result{kBf16, kBf16, kFp16, kFp16};
  EXPECT_EQ(find_core(tensor_cores(), "volta", MatrixInstruction::usual, fp8, &why), nullptr);
  EXPECT_FALSE(why.empty());
  why.clear();
  EXPECT_EQ(find_core(tensor_cores(), "hopper", MatrixInstruction::usual, bf16_result, &why), nullptr);
  EXPECT_FALSE(why.empty());
  EXPECT_EQ(find_core(tensor_cores(), "hopper", MatrixInstruction::mma_m16n8k8, fp8), nullptr)
      << "fp8 needs k = 16 or 32 there";
}

TEST(TensorCore, OperandsOfDifferentLengthsAndMissingScalesAreErrors) {
  const Unit plain = f16_to_f32(),
             scaled = unit("blackwell", MatrixInstruction::tcgen05_k32, kE4m3, kFp32, {DType::e8m0, 32});
  const std::vector<uint64_t> sixteen(16, 0), eight(8, 0), thirty_two(32, 0);
  EXPECT_THROW(dot(plain, sixteen, eight, 0), Error);
  EXPECT_THROW(dot(scaled, thirty_two, thirty_two, 0), Error);
  EXPECT_THROW(dot(plain, sixteen, sixteen, 0, std::vector<uint8_t>{127}, std::vector<uint8_t>{127}), Error);
}

TEST(TensorCore, TermsTakenApartGiveTheSameAsCodes) {
  const Unit core = f16_to_f32();
  const RandomKey key(11);
  for (uint64_t trial = 0; trial < 500; ++trial) {
    std::vector<uint64_t> a(32), b(32);
    std::vector<Term> ta, tb;
    for (uint64_t i = 0; i < 32; ++i) {
      a[i] = key.child(trial).bits(i) & (trial % 2 ? 0xFFFF : 0xBFFF), b[i] = key.child(trial).bits(i + 32) & 0xBFFF;
      ta.push_back(take_apart(kFp16, static_cast<uint32_t>(a[i])));
      tb.push_back(take_apart(kFp16, static_cast<uint32_t>(b[i])));
    }
    const auto c = static_cast<uint32_t>(key.child(trial).bits(64) & 0xBFFFFFFF);
    ASSERT_EQ(dot(*core.core, Operand{kFp16, ta}, Operand{kFp16, tb}, c), dot(core, a, b, c)) << trial;
  }
}

}  // namespace
}  // namespace halfmark::kernels
