// Block formats: the rules for their scales, exact decoding, and errors within what the format allows.
#include "kernels/number/block_scaled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

std::vector<float> normal_values(size_t count, int spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values)
    value = std::ldexp(normal(random), static_cast<int>(random() % static_cast<uint64_t>(2 * spread + 1)) - spread);
  return values;
}

double scale_of(const BlockScaled& x, size_t block) { return load(x.format->scale, x.scales.data(), block); }
uint64_t code_of(const BlockScaled& x, size_t i) { return load_code(x.format->element, x.codes.data(), i); }

TEST(BlockScaled, NamesAndRoom) {
  for (const BlockFormat& format : block_formats()) EXPECT_EQ(&block_format_named(format.name), &format);
  EXPECT_THROW(block_format_named("mxfp5"), Error);
  const std::vector<float> values = normal_values(3 * 70, 1, 1);
  const BlockScaled mx = quantize(block_format_named("mxfp4"), values, 3, 70);
  EXPECT_EQ(mx.blocks(), 3u) << "32 + 32 + 6";
  EXPECT_EQ(mx.scales.size(), 9u);
  EXPECT_EQ(mx.codes.size(), 105u);
  EXPECT_EQ(mx.values().size(), 210u);
  EXPECT_EQ(quantize(block_format_named("mxfp6-e2m3"), values, 3, 70).codes.size(), 210u);
  EXPECT_EQ(quantize(block_format_named("nvfp4"), values, 3, 70).scales.size(), 15u);
  EXPECT_THROW(quantize(*mx.format, values, 3, 71), Error);
}

TEST(BlockScaled, MxScalesAreThePowerOfTwoOfTheRule) {
  struct Case {
    std::string_view name;
    double amax, scale;
  };
  // floor(log2 amax) minus 8 (e4m3), 15 (e5m2), 4 (e3m2) or 2 (e2m3, e2m1).
  for (const Case& c :
       {Case{"mxfp8-e4m3", 448, 1}, Case{"mxfp8-e4m3", 511, 1}, Case{"mxfp8-e4m3", 512, 2},
        Case{"mxfp8-e5m2", 57344, 1}, Case{"mxfp6-e3m2", 28, 1}, Case{"mxfp6-e2m3", 7.5, 1}, Case{"mxfp4", 6, 1},
        Case{"mxfp4", 7.99, 1}, Case{"mxfp4", 8, 2}, Case{"mxfp4", 1, 0.25}, Case{"mxfp4", 0x1p-126, 0x1p-127},
        Case{"mxfp8-e4m3", 0x1p-149, 0x1p-127}, Case{"mxfp4", 0x1.FFFFFEp127, 0x1p125}}) {
    std::vector<float> values(32, 0);
    values[17] = static_cast<float>(-c.amax);
    EXPECT_EQ(scale_of(quantize(block_format_named(c.name), values, 1, 32), 0), c.scale) << c.name << " " << c.amax;
  }
}

TEST(BlockScaled, TooLargeElementsSaturate) {
  std::vector<float> values(32, 1);
  values[3] = -511;
  const BlockScaled x = quantize(block_format_named("mxfp8-e4m3"), values, 1, 32);
  EXPECT_EQ(x.value(0, 3), -448);
  EXPECT_EQ(x.value(0, 4), 1);
  values[3] = 7.99F;
  EXPECT_EQ(quantize(block_format_named("mxfp4"), values, 1, 32).value(0, 3), 6);
}

TEST(BlockScaled, Nvfp4ScalesAreThoseOfItsDescription) {
  // The largest magnitude of the tensor is 2688 = 448 * 6: the tensor scale is 1, so block scales are amax / 6 in e4m3.
  std::vector<float> values(3 * 16, 0);
  values[5] = -2688, values[16] = 6, values[32] = 20;
  const BlockScaled x = quantize(block_format_named("nvfp4"), values, 1, 48);
  EXPECT_EQ(x.tensor_scale, 1);
  EXPECT_EQ(scale_of(x, 0), 448);
  EXPECT_EQ(scale_of(x, 1), 1);
  EXPECT_EQ(scale_of(x, 2), 3.25) << "20 / 6 = 3.33 in e4m3";
  EXPECT_EQ(x.value(0, 5), -2688);
  EXPECT_EQ(x.value(0, 16), 6);
  EXPECT_EQ(x.value(0, 32), 19.5) << "20 / 3.25 = 6.15 saturates at 6";
  for (float& value : values) value *= 0x1p-20F;
  EXPECT_EQ(quantize(*x.format, values, 1, 48).tensor_scale, 0x1p-20F) << "the tensor scale absorbs the common factor";
}

TEST(BlockScaled, TinyBlocksBecomeZerosInNvfp4) {
  std::vector<float> values(2 * 16, 2688);
  std::fill(values.begin() + 16, values.end(), -0x1p-9F * 3);  // amax / 6 = 2^-10: a tie, to 0
  const BlockScaled x = quantize(block_format_named("nvfp4"), values, 1, 32);
  EXPECT_EQ(scale_of(x, 1), 0);
  EXPECT_EQ(x.value(0, 20), 0);
  EXPECT_EQ(code_of(x, 20), 0x8u) << "the sign stays";
  std::fill(values.begin(), values.end(), std::numeric_limits<float>::denorm_min());
  const BlockScaled least = quantize(*x.format, values, 1, 32);
  EXPECT_EQ(least.tensor_scale, 0x1p-149F);
  EXPECT_EQ(least.value(0, 0), 0.171875 * 6 * 0x1p-149) << "1 / 6 is 0.171875 in e4m3, and 5.8 of that is 6";
}

TEST(BlockScaled, ZerosKeepTheirSign) {
  std::vector<float> values(64, 0.0F);
  values[1] = -0.0F;
  for (const BlockFormat& format : block_formats()) {
    const BlockScaled x = quantize(format, values, 1, 64);
    EXPECT_EQ(x.tensor_scale, 1);
    EXPECT_EQ(scale_of(x, 0), format.scale == DType::e8m0 ? 0x1p-127 : 0) << format.name;
    EXPECT_EQ(code_of(x, 0), 0u);
    EXPECT_EQ(code_of(x, 1), uint64_t{1} << (bits_of(format.element) - 1)) << format.name;
    for (const double value : x.values()) EXPECT_EQ(value, 0) << format.name;
  }
}

TEST(BlockScaled, ABlockWithANaNOrAnInfinityIsNaN) {
  for (const BlockFormat& format : block_formats())
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> values(3 * format.block, 1);
      values[format.block + 2] = bad;
      const BlockScaled x = quantize(format, values, 1, values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const bool in_block = i / format.block == 1;
        EXPECT_EQ(std::isnan(x.value(0, i)), in_block) << format.name << " " << i;
        EXPECT_EQ(code_of(x, i) == 0, in_block) << format.name << " " << i;
      }
      EXPECT_EQ(x.value(0, 0), format.tensor_scale ? x.values().back() : 1) << format.name;
    }
}

TEST(BlockScaled, ErrorsAreWithinTheFormat) {
  for (const BlockFormat& format : block_formats()) {
    const Format& element = format_of(format.element);
    const size_t rows = 40, depth = 200;
    const std::vector<float> values = normal_values(rows * depth, 6, 2);
    const BlockScaled x = quantize(format, values, rows, depth);
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < depth; ++k) {
        const double exact = static_cast<double>(values[row * depth + k]), actual = x.value(row, k);
        const double scale = scale_of(x, row * x.blocks() + k / format.block) * static_cast<double>(x.tensor_scale);
        // Half a last place of the element: relative for a normal number, absolute below; or the distance to the
        // largest number.
        double bound = std::max(element.unit_roundoff() * std::fabs(exact),
                                std::ldexp(0.5, element.min_subnormal_exponent()) * scale);
        bound = std::max(bound, std::fabs(exact) - element.max_finite() * scale);
        ASSERT_LE(std::fabs(actual - exact), bound) << format.name << " " << exact;
      }
  }
}

// Decoded values are code * scale * tensor scale. If scales and codes are powers of two with few bits, quantising the
// decoded values again gives the same codes.
TEST(BlockScaled, QuantisingWhatWasDecodedChangesNothing) {
  for (const BlockFormat& format : block_formats()) {
    if (format.tensor_scale) continue;
    const BlockScaled first = quantize(format, normal_values(32 * 64, 3, 3), 32, 64);
    std::vector<float> decoded;
    for (const double value : first.values()) decoded.push_back(static_cast<float>(value));
    const BlockScaled second = quantize(format, decoded, 32, 64);
    EXPECT_EQ(first.codes, second.codes) << format.name;
    EXPECT_EQ(first.scales, second.scales) << format.name;
  }
}

TEST(BlockScaled, RoundingTowardZeroNeverGrows) {
  const std::vector<float> values = normal_values(64 * 32, 4, 4);
  for (const BlockFormat& format : block_formats()) {
    const BlockScaled x = quantize(format, values, 64, 32, Rounding::toward_zero);
    const std::vector<double> decoded = x.values();
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_LE(std::fabs(decoded[i]), std::fabs(static_cast<double>(values[i]))) << format.name;
  }
  EXPECT_THROW(quantize(block_formats()[0], values, 64, 32, Rounding::stochastic), Error);
}

}  // namespace
}  // namespace halfmark::kernels
