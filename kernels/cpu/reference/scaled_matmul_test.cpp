// The reference row of matmul on codes with scales: its sums in fp32 give the bits of the definition, with an fp32 rounding
// after each addition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

constexpr int64_t kScaledRows = 5, kScaledColumns = 7, kScaledDepth = 300;

std::vector<double> drawn_codes(int64_t count, uint64_t seed, const Format& format) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        round_to(format, std::ldexp(RandomKey(seed).normal(i), static_cast<int>(i % 9) - 4), Rounding::toward_zero);
  return values;
}

// The sum of one element, one rounding after each product.
double rounded_chain(const std::vector<double>& a, const std::vector<double>& b, size_t row, size_t column,
                     size_t begin, size_t end, auto&& scale) {
  double sum = 0;
  for (size_t k = begin; k < end; ++k)
    sum = round_to(kFp32, add_to_odd(sum, a[row * kScaledDepth + k] * b[column * kScaledDepth + k] * scale(k)));
  return sum;
}

struct ScaledCodes {
  std::shared_ptr<Device> device = open_device("cpu");
  std::vector<double> a = drawn_codes(kScaledRows * kScaledDepth, 1, kE4m3),
                      b = drawn_codes(kScaledColumns * kScaledDepth, 2, kE5m2);
  Tensor out{*device, {kScaledRows, kScaledColumns}, DType::f32};
  Scaled side(const std::vector<double>& codes, int64_t rows, DType dtype) const {
    return {.codes = Tensor::from(*device, {rows, kScaledDepth}, dtype, codes), .scales = {}};
  }
};

TEST(ScaledMatmulReference, AddsCodesInFp32) {
  ScaledCodes f;
  const Scaled a = f.side(f.a, kScaledRows, DType::e4m3), b = f.side(f.b, kScaledColumns, DType::e5m2);
  run(ScaledMatmul{.a = a, .b = b, .out = f.out});
  const std::vector<double> found = f.out.values();
  for (size_t i = 0; i < kScaledRows; ++i)
    for (size_t j = 0; j < kScaledColumns; ++j)
      ASSERT_EQ(found[i * kScaledColumns + j],
                rounded_chain(f.a, f.b, i, j, 0, kScaledDepth, [](size_t) { return 1.0; }));
}

// Scales of 2^60 and 2^-60 are beyond the quick path and give the products of the scale 1.
TEST(ScaledMatmulReference, GivesTheSameBitsForOperandsThatTheQuickPathRefuses) {
  ScaledCodes f;
  Scaled a = f.side(f.a, kScaledRows, DType::e4m3), b = f.side(f.b, kScaledColumns, DType::e5m2);
  std::vector<std::vector<double>> results;
  for (const double size : {1.0, 0x1p60}) {
    a.tile_depth = b.tile_depth = 32;
    a.scales = Tensor::from(*f.device, {kScaledRows, 10}, DType::e8m0, std::vector<double>(kScaledRows * 10, size));
    b.scales =
        Tensor::from(*f.device, {kScaledColumns, 10}, DType::e8m0, std::vector<double>(kScaledColumns * 10, 1 / size));
    run(ScaledMatmul{.a = a, .b = b, .out = f.out});
    results.push_back(f.out.values());
  }
  EXPECT_EQ(results[0], results[1]);
}

// A block is a sum of its own; its scales multiply it, and fp32 adds it to the blocks before it.
TEST(ScaledMatmulReference, MultipliesBlocksByTheirScalesBeforeItAddsThem) {
  ScaledCodes f;
  Scaled a = f.side(f.a, kScaledRows, DType::e4m3), b = f.side(f.b, kScaledColumns, DType::e5m2);
  const float of_a[] = {0.3F, 7, 0.001F}, of_b[] = {1.7F, 0.11F, 3};
  std::vector<double> scales_a, scales_b(of_b, of_b + 3);
  for (int64_t row = 0; row < kScaledRows; ++row) scales_a.insert(scales_a.end(), of_a, of_a + 3);
  a.tile_depth = 128, b.tile_depth = 128, b.tile_rows = 128;
  a.scales = Tensor::from(*f.device, {kScaledRows, 3}, DType::f32, scales_a);
  b.scales = Tensor::from(*f.device, {1, 3}, DType::f32, scales_b);
  const double half = 0.5;
  a.tensor_scale = Tensor::from(*f.device, {1}, DType::f32, std::span(&half, 1));
  run(ScaledMatmul{.a = a, .b = b, .out = f.out});
  const std::vector<double> found = f.out.values();
  int one_sum = 0;
  for (size_t i = 0; i < kScaledRows; ++i)
    for (size_t j = 0; j < kScaledColumns; ++j) {
      float sum = 0;
      for (size_t block = 0; block < 3; ++block) {
        const size_t begin = block * 128, end = block == 2 ? kScaledDepth : begin + 128;
        const auto part = static_cast<float>(rounded_chain(f.a, f.b, i, j, begin, end, [](size_t) { return 1.0; }));
        const float scale = of_a[block] * of_b[block];
        const float scaled = part * scale;
        sum = sum + scaled;
      }
      ASSERT_EQ(found[i * kScaledColumns + j], static_cast<double>(sum * 0.5F));
      const double in_one = rounded_chain(f.a, f.b, i, j, 0, kScaledDepth,
                                          [&](size_t k) { return static_cast<double>(of_a[k / 128] * of_b[k / 128]); });
      one_sum += found[i * kScaledColumns + j] == in_one / 2;
    }
  EXPECT_LT(one_sum, kScaledRows * kScaledColumns / 2) << "the test does not see whether scales are inside the sums";
}

}  // namespace
}  // namespace halfmark::kernels
