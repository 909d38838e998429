// Quantisers of training recipes against worked examples, computed from the owners' rules in exact arithmetic by other code,
// and against the mistakes that such code has had. scripts/quantizers_test.py compares random tensors with an implementation
// in fractions.
#include "kernels/number/quantizer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/number/block_scaled.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

using Codes = std::vector<unsigned>;
constexpr float kInfinite = std::numeric_limits<float>::infinity(), kLargestFp32 = std::numeric_limits<float>::max();
const float kNoNumber = std::nanf("");

float bits(uint32_t pattern) { return std::bit_cast<float>(pattern); }

// One row, which is one tile if it is short enough.
struct Example {
  const char* quantizer;
  std::vector<float> x;
  float factor, decode;
  unsigned scale_code;
  Codes codes;
  DType input = DType::f32;
};

void expect_example(const Example& one) {
  SCOPED_TRACE(std::string(one.quantizer) + " of " + std::to_string(one.x[0]));
  const Quantized found = quantize(quantizer_named(one.quantizer), one.x, 1, one.x.size(), one.input);
  EXPECT_EQ(std::bit_cast<uint32_t>(found.tiles[0].factor), std::bit_cast<uint32_t>(one.factor));
  EXPECT_TRUE(std::isnan(one.decode) ||
              std::bit_cast<uint32_t>(found.tiles[0].decode) == std::bit_cast<uint32_t>(one.decode))
      << found.tiles[0].decode;
  EXPECT_EQ(found.tiles[0].code, one.scale_code);
  EXPECT_EQ(Codes(found.codes.begin(), found.codes.end()), one.codes);
}

TEST(Quantizer, GivesTheCodesOfTheTransformerEngine) {
  const float third = bits(0x43155555);  // 448 / 3
  const Example examples[] = {
      {"te-current-e4m3", {0, 0}, 1, 1, 0, {0, 0}},
      {"te-current-e4m3", {1, -2, 3, 0.1F}, third, bits(0x3BDB6DB7), 0, {0x71, 0xF9, 0x7E, 0x57}},
      {"te-current-pow2-e4m3", {1, -2, 3, 0.1F}, 128, 1 / 128.0F, 0, {0x70, 0xF8, 0x7C, 0x55}},
      {"te-current-e5m2", {1, -2, 3, 0.1F}, bits(0x46955555), 1 / bits(0x46955555), 0, {0x75, 0xF9, 0x7B, 0x67}},
      {"te-current-e4m3", {1e-40F, -5e-41F, 0, 1e-42F}, bits(0x7F7FFFFF), bits(0x00200000), 0, {0x11, 0x89, 0, 0}},
      {"te-current-pow2-e4m3", {1e-40F, -5e-41F, 0, 1e-42F}, 0x1p127F, bits(0x00400000), 0, {0x09, 0x84, 0, 0}},
      {"te-current-e4m3", {1, kInfinite, -500, kNoNumber}, 1, 1, 0, {0x38, 0x7E, 0xFE, 0x7F}},
      {"te-block-1x128", {0.5F, -0.25F, 300, 0.001F}, 1, 1, 0, {0x30, 0xA8, 0x79, 0x01}},
      {"te-block-1x128-fp32",
       {0.5F, -0.25F, 300, 0.001F},
       bits(0x3FBF258C),
       1 / bits(0x3FBF258C),
       0,
       {0x34, 0xAC, 0x7E, 0x01}},
      {"te-block-1x128-fp32",
       {0x1p-133F, -0x1p-131F},
       bits(0x7F7F0000),
       bits(0x00202020),
       0,
       {0x10, 0xA0},
       DType::bf16},
      {"te-block-1x128", {0x1p-133F, -0x1p-131F}, 0x1p127F, bits(0x00400000), 0, {0x08, 0x98}, DType::bf16},
      {"te-mxfp8-e4m3", {448, 1}, 1, 1, 0x7F, {0x7E, 0x38}},
      {"te-mxfp8-e4m3", {449, 1}, 0.5F, 2, 0x80, {0x76, 0x30}},
      {"te-mxfp8-e4m3", {500, -3}, 0.5F, 2, 0x80, {0x78, 0xBC}},
      {"te-mxfp8-e4m3", {bits(0x43E00001), 1}, 0.5F, 2, 0x80, {0x76, 0x30}},  // 448.00003: no rounding to bf16 before
      {"te-mxfp8-e5m2", {60000, 1}, 0.5F, 2, 0x80, {0x77, 0x38}},
      {"te-mxfp8-e4m3", {0, 0}, 0x1p127F, 0x1p-127F, 0, {0, 0}},
      {"te-mxfp8-e4m3", {0x1p-130F, 0x1p-133F}, 0x1p127F, 0x1p-127F, 0, {0x20, 0x08}},
      {"te-mxfp8-e4m3", {448 * 0x1p-127F, 0x1p-120F}, 0x1p127F, 0x1p-127F, 0, {0x7E, 0x70}},
      {"te-mxfp8-e4m3", {kInfinite, 1}, 0x1p-127F, 0x1p127F, 0xFE, {0x7E, 0}},
      {"te-mxfp8-e4m3", {5, kNoNumber}, 64, 1 / 64.0F, 0x79, {0x7A, 0x7F}},
      {"te-mxfp8-e4m3", {kLargestFp32, 1}, 0x1p-120F, 0x1p120F, 0xF7, {0x78, 0}},
      {"te-nvfp4", {0, -0.0F}, kLargestFp32, 0, 0, {0, 8}},
      {"te-nvfp4", {kInfinite, 1}, 1 / 448.0F, 448, 0x7E, {7, 0}},
      {"torchao-tensorwise-e4m3", {0, 0}, bits(0x57CBBA10), 1 / bits(0x57CBBA10), 0, {0, 0}},
      {"torchao-tensorwise-e4m3", {3, 1}, third, 1 / third, 0, {0x7E, 0x71}},
      {"torchao-rowwise", {3, 1}, 128, 1 / 128.0F, 0, {0x7C, 0x70}},
      {"deepseek-1x128", {0, 0}, 1 / bits(0x346FACAD), bits(0x346FACAD), 0, {0, 0}},
  };
  for (const Example& one : examples) expect_example(one);
}

TEST(Quantizer, RoundsElementsToEvenAndSaturates) {
  const auto codes = [](DType dtype, std::initializer_list<double> values) {
    Codes found;
    for (const double x : values)
      found.push_back(static_cast<unsigned>(encode(dtype, x, Rounding::near_even, nullptr, 0, Overflow::saturate)));
    return found;
  };
  EXPECT_EQ(codes(DType::e4m3, {17, 19, 464, 0x1p-10, 0x2p-10, 0x3p-10, 0x5p-10}),
            (Codes{0x58, 0x5A, 0x7E, 0, 1, 2, 2}));
  EXPECT_EQ(codes(DType::e5m2, {9, 11, 61439, 65536, 0x1p-17, 0x3p-17}), (Codes{0x48, 0x4A, 0x7B, 0x7B, 0, 2}));
  EXPECT_EQ(codes(DType::e2m1, {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}), (Codes{0, 2, 2, 4, 4, 6, 6}));
}

// Blocks of one tensor: {6, -3, 1, 1/4} and a block that is much smaller.
TEST(Quantizer, GivesBlocksOfNvfp4TheirScaleUnderThatOfTheTensor) {
  const auto blocks_of = [](std::vector<float> first, std::vector<float> second) {
    first.resize(16), second.resize(16);
    first.insert(first.end(), second.begin(), second.end());
    return quantize(quantizer_named("te-nvfp4"), first, 1, 32);
  };
  const Quantized usual = blocks_of({6, -3, 1, 0.25F}, {0.01F, -0.004F, 0.0011F, 0});
  EXPECT_EQ(usual.tiles[0].code, 0x7E);
  EXPECT_EQ(usual.tiles[0].factor, 1);
  EXPECT_EQ(Codes(usual.codes.begin(), usual.codes.begin() + 4), (Codes{7, 0xD, 2, 0}));
  EXPECT_EQ(usual.tiles[1].code, 0x34);
  EXPECT_EQ(usual.tiles[1].factor, bits(0x44155555));
  EXPECT_EQ(Codes(usual.codes.begin() + 16, usual.codes.begin() + 20), (Codes{7, 0xC, 1, 0}));
  // A block whose scale is 0: its codes are the largest, and decode to 0.
  const Quantized small = blocks_of({1000}, {5e-4F, 1e-5F});
  EXPECT_EQ(small.tiles[1].code, 0);
  EXPECT_EQ(small.tiles[1].factor, kLargestFp32);
  EXPECT_EQ(Codes(small.codes.begin() + 16, small.codes.begin() + 18), (Codes{7, 7}));
  EXPECT_EQ(small.value(0, 16), 0);
  const Quantized infinite = blocks_of({kInfinite, 1}, {3, 1});
  EXPECT_EQ(infinite.tiles[1].code, 0x30);
  EXPECT_EQ(Codes(infinite.codes.begin() + 16, infinite.codes.begin() + 18), (Codes{7, 4}));
  const Quantized tiny = blocks_of({0x1p-130F}, {});
  EXPECT_EQ(tiny.tiles[0].code, 0x13) << "the scale of the tensor is the largest fp32 number";
  EXPECT_EQ(tiny.codes[0], 0);
}

// The same number by each owner: OCP rounds scales down, and infinity or NaN makes a NaN of the block.
// A tie between the largest number and the next goes to the even one: 448 is even and keeps 464, 57344 is odd.
TEST(Quantizer, CountsWhatIsLargerThanTheLargestCodeStandsFor) {
  const auto saturated = [](const char* rule, const std::vector<float>& x) {
    return losses_of(quantize_with(quantizer_named(rule), 1, x, 1, x.size()), x).saturated;
  };
  EXPECT_EQ(saturated("te-current-e4m3", {448, 464, -464, 464.5F, 1000}), 2u);
  EXPECT_EQ(saturated("te-current-e5m2", {57344, 61439, 61440, -61440}), 2u);
}

TEST(Quantizer, DiffersFromTheFormatByTheOcpRule) {
  const auto ocp = [](const char* format, const std::vector<float>& x) {
    const BlockScaled found = quantize(block_format_named(format), x, 1, x.size());
    return Codes{found.scales[0], found.codes[0], found.codes[1]};
  };
  EXPECT_EQ(ocp("mxfp8-e4m3", {448, 1}), (Codes{0x7F, 0x7E, 0x38}));
  EXPECT_EQ(ocp("mxfp8-e4m3", {449, 1}), (Codes{0x7F, 0x7E, 0x38}));
  EXPECT_EQ(ocp("mxfp8-e4m3", {500, -3}), (Codes{0x7F, 0x7E, 0xC4}));
  EXPECT_EQ(ocp("mxfp8-e5m2", {60000, 1}), (Codes{0x7F, 0x7B, 0x3C}));
  EXPECT_EQ(ocp("mxfp8-e4m3", {kLargestFp32, 1}), (Codes{0xF6, 0x7E, 0}));
  EXPECT_EQ(ocp("mxfp8-e4m3", {kInfinite, 1})[0], 0xFF);
  EXPECT_EQ(ocp("mxfp8-e4m3", {5, kNoNumber})[0], 0xFF);
}

TEST(Quantizer, DividesOrMultipliesAsItsOwner) {
  std::vector<float> x = {1.53125F, bits(0x3A2F0000)};
  EXPECT_EQ(quantize(quantizer_named("deepseek-1x128"), x, 1, 2).codes[1], 0x24);
  EXPECT_EQ(quantize(quantizer_named("deepgemm-1x128"), x, 1, 2).codes[1], 0x25);
}

TEST(Quantizer, HasTilesOfItsShapeWithSmallerOnesAtTheEdges) {
  const size_t rows = 130, depth = 200;
  std::vector<float> x(rows * depth, 1);
  x[129 * depth + 199] = 448, x[0] = 224;
  const Quantized tiles = quantize(quantizer_named("te-block-128x128"), x, rows, depth);
  ASSERT_EQ(tiles.tiles.size(), 4u);
  EXPECT_EQ(tiles.tiles[0].factor, 2);
  EXPECT_EQ(tiles.tiles[1].factor, 256);
  EXPECT_EQ(tiles.tiles[2].factor, 256);
  EXPECT_EQ(tiles.tiles[3].factor, 1);
  EXPECT_EQ(quantize(quantizer_named("te-block-1x128"), x, rows, depth).tiles.size(), rows * 2);
  EXPECT_EQ(quantize(quantizer_named("te-mxfp8-e4m3"), x, rows, depth).tiles.size(), rows * 7);
  EXPECT_EQ(quantize(quantizer_named("torchao-rowwise"), x, rows, depth).tiles.size(), rows);
  EXPECT_EQ(quantize(quantizer_named("te-current-e4m3"), x, rows, depth).tiles.size(), 1u);
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < depth; ++k) ASSERT_EQ(tiles.value(row, k), x[row * depth + k]) << "exact under each scale";
  EXPECT_THROW(quantize(quantizer_named("te-mxfp8-e4m3"), x, rows, depth + 1), Error);
  EXPECT_THROW(quantizer_named("te-mxfp9"), Error);
}

// A perturbed element moves the codes of its tile only, for a rule without a scale of the tensor.
TEST(Quantizer, ChangesNoOtherTile) {
  std::vector<float> x(4 * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const Quantized before = quantize(quantizer_named("te-mxfp8-e4m3"), x, 4, 64);
  x[2 * 64 + 40] = 100;
  const Quantized after = quantize(quantizer_named("te-mxfp8-e4m3"), x, 4, 64);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_of_tile = i / 64 == 2 && i % 64 >= 32;
    EXPECT_TRUE(is_of_tile || before.codes[i] == after.codes[i]) << i;
  }
  EXPECT_NE(before.tiles[5].code, after.tiles[5].code);
}

TEST(AmaxHistory, HasTheScalesOfTheFusedKernel) {
  const auto scales_of = [](AmaxChoice choice) {
    AmaxHistory history(kE4m3, 3, choice);
    EXPECT_EQ(history.scale(), 1) << "the first step saturates everything above 448";
    std::vector<float> scales;
    for (const float amax : {2.0F, 0.0F, 7.0F, kInfinite, 4.0F, 4.0F, 4.0F, 1e-44F}) {
      history.observe(amax), history.update();
      scales.push_back(history.scale());
    }
    return scales;
  };
  EXPECT_EQ(scales_of(AmaxChoice::max), (std::vector<float>{224, 224, 64, 64, 64, 64, 112, 112}));
  EXPECT_EQ(scales_of(AmaxChoice::most_recent), (std::vector<float>{224, 224, 64, 64, 112, 112, 112, kLargestFp32}));
}

TEST(AmaxHistory, TakesTheLargestOfSeveralBatchesAndLosesNaN) {
  AmaxHistory history(kE5m2, 4, AmaxChoice::max, 1);
  for (const float amax : {3.0F, kNoNumber, 14.0F, 5.0F}) history.observe(amax);
  history.update();
  EXPECT_EQ(history.scale(), 57344.0F / 2 / 14);
  EXPECT_EQ(history.history()[0], 0) << "of the next step";
  EXPECT_EQ(history.history()[3], 14);
  history.observe(1), history.update(28);
  EXPECT_EQ(history.scale(), 1024) << "of all ranks";
  const std::vector<float> before(history.history().begin(), history.history().end());
  history.update();
  EXPECT_EQ(std::vector<float>(history.history().begin(), history.history().end()), before)
      << "a step without a number is none";
  EXPECT_THROW(AmaxHistory(kE4m3, 0), Error);
}

TEST(StochasticE2m1, HasTheCodesOfTheSoftware) {
  struct Case {
    float x;
    unsigned char noise, code;
  };
  for (const Case& one : {Case{2.25F, 0xBF, 4},
                          {2.25F, 0xC0, 5},
                          {1.9F, 0x33, 3},
                          {1.9F, 0x34, 4},
                          {5.5F, 0x3F, 6},
                          {5.5F, 0x40, 7},
                          {-0.1F, 0xCC, 8},
                          {-0.1F, 0xCD, 9},
                          {100, 0, 7},
                          {-kInfinite, 0xFF, 15},
                          {kNoNumber, 0, 7},
                          {-0.0F, 0xFF, 8}})
    EXPECT_EQ(stochastic_e2m1(one.x, one.noise), one.code) << one.x << " " << int{one.noise};
}

// Over all bytes the mean is that of 8 bits: within a 256th of the step, and never 0 from one half on.
TEST(StochasticE2m1, IsUnbiasedUpToEightBits) {
  for (int i = 0; i <= 600; ++i) {
    const float x = static_cast<float>(i) / 100;
    const double step = x < 2 ? 0.5 : x < 4 ? 1 : 2;
    double sum = 0;
    for (int noise = 0; noise < 256; ++noise) {
      const double value = decode(DType::e2m1, stochastic_e2m1(x, static_cast<unsigned char>(noise)));
      EXPECT_TRUE(x < 0.5F || value != 0) << x;
      sum += value;
    }
    EXPECT_NEAR(sum / 256, x, step / 256 * 1.01) << x;
  }
  double sum = 0;
  for (int noise = 0; noise < 256; ++noise)
    sum += decode(DType::e2m1, stochastic_e2m1(1.9F, static_cast<unsigned char>(noise)));
  EXPECT_EQ(sum / 256, 1.8984375);
}

// 10^7 numbers: the mean of the error is within 4 standard deviations of the bias that 8 bits have.
TEST(StochasticE2m1, IsUnbiasedOverTenMillionNumbers) {
  constexpr size_t kManyRows = 1000, kManyColumns = 10000;
  std::vector<float> x(kManyRows * kManyColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 64) / 64 * 6 - 3;  // 8 bits are exact for most
  const Quantized found = quantize(quantizer_named("te-nvfp4"), x, kManyRows, kManyColumns, DType::f32,
                                   NoiseStream{.seed = 16, .first = 0});
  // The expectation of each code, over its 256 bytes.
  std::vector<double> mean(64), variance(64);
  const float factor = found.tiles[0].factor;
  for (size_t i = 0; i < 64; ++i) {
    for (int noise = 0; noise < 256; ++noise) {
      const double code = decode(DType::e2m1, stochastic_e2m1(x[i] * factor, static_cast<unsigned char>(noise)));
      mean[i] += code / 256, variance[i] += code * code / 256;
    }
    variance[i] -= mean[i] * mean[i];
  }
  double difference = 0, total = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(found.tiles[found.tile_of(i / kManyColumns, i % kManyColumns)].factor > 0, true);
    if (found.tiles[found.tile_of(i / kManyColumns, i % kManyColumns)].factor != factor) continue;
    difference += decode(DType::e2m1, found.codes[i]) - mean[i % 64], total += variance[i % 64];
  }
  EXPECT_LT(std::fabs(difference), 4 * std::sqrt(total));
  EXPECT_GT(total, 0);
}

// The copies along rows and along columns must not share their noise.
TEST(StochasticE2m1, HasOtherNoiseForAnotherStream) {
  std::vector<float> x(4096);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 37);
  const auto codes = [&](uint64_t seed) {
    return quantize(quantizer_named("te-nvfp4"), x, 16, 256, DType::f32, NoiseStream{.seed = seed}).codes;
  };
  EXPECT_EQ(codes(1), codes(1));
  EXPECT_NE(codes(1), codes(2));
  EXPECT_THROW(quantize(quantizer_named("te-mxfp8-e4m3"), x, 16, 256, DType::f32, NoiseStream{}), Error);
}

TEST(Hadamard16, IsTheTransformOfTheRecipe) {
  float x[16] = {}, found[16];
  x[3] = 1;
  hadamard_16(x, found);
  for (int j = 0; j < 16; ++j) EXPECT_EQ(found[j], (j % 4 == 0 || j % 4 == 3 ? -0.25F : 0.25F)) << j;
  for (float& one : x) one = 1;
  hadamard_16(x, found);
  const float of_ones[16] = {-1, 0, 1, 0, 1, 0, -1, 0, 1, 2, 1, 0, 1, 0, 1, -2};
  for (int j = 0; j < 16; ++j) EXPECT_EQ(found[j], of_ones[j]) << j;
}

// H is orthogonal: the product of two transformed rows is that of the rows, for numbers that bf16 holds after the transform.
TEST(Hadamard16, CancelsInAProduct) {
  float a[16], b[16], ta[16], tb[16];
  for (int i = 0; i < 16; ++i) a[i] = static_cast<float>(i % 5 - 2), b[i] = static_cast<float>(i % 3 - 1);
  hadamard_16(a, ta), hadamard_16(b, tb);
  EXPECT_EQ(std::inner_product(a, a + 16, b, 0.0F), std::inner_product(ta, ta + 16, tb, 0.0F));
}

}  // namespace
}  // namespace halfmark::kernels
