// Batch norm with sums that are rounded after each addition: statistics with the bits of the CPU's reference, which is compared
// with numpy.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

struct Result {
  std::string row;
  std::vector<std::vector<double>> values;  // out, mean, variance, running mean, running variance
};

// Values around `centre`, which sums of 36 of them round again and again.
Result batch_norm(Device& device, DType dtype, Layout layout, const Format* accumulate, double centre) {
  const Shape shape{3, 5, 3, 4}, c{5};
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  const RandomKey key(5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = centre + 3 * key.normal(i);
  const Tensor plain = Tensor::from(device, shape, dtype, values);
  Tensor x(device, shape, dtype, layout);
  run(Reorder{.x = plain, .out = x});
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor scale = Tensor::from(device, c, wide, std::vector<double>{1, 2, 0.5, 1, 3}),
               shift = Tensor::from(device, c, wide, std::vector<double>{0, 1, 0, -1, 2});
  Tensor out(device, shape, dtype, layout), mean(device, c, wide), variance(device, c, wide),
      running_mean = Tensor::zeros(device, c, wide), running_variance = Tensor::zeros(device, c, wide);
  KernelLog log;
  run(BatchNorm{.x = x,
                .scale = scale,
                .shift = shift,
                .out = out,
                .mean = mean,
                .variance = variance,
                .running_mean = running_mean,
                .running_variance = running_variance,
                .accumulate = accumulate});
  return {log.entries().at(0).row,
          {out.values(), mean.values(), variance.values(), running_mean.values(), running_variance.values()}};
}

constexpr size_t kRunningVariance = 4;

// The reference divides once less in the running variance, which fp64 shows.
bool is_same(double found, double expected, bool is_nearly) {
  if (std::isnan(found) || std::isnan(expected)) return std::isnan(found) && std::isnan(expected);
  return found == expected || (is_nearly && std::fabs(found - expected) <= 0x1p-51 * std::fabs(expected));
}

using InOrder = Gpu;

TEST_F(InOrder, SumsOfBatchNormHaveTheBitsOfTheCpusReference) {
  const auto cpu = open_device("cpu");
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const Layout layout : {Layout::plain, Layout::nhwc})
      for (const Format* accumulate : {&kFp16, &kBf16, &kFp32, &kFp64})
        for (const double centre : {0.0, 40.0, 3000.0}) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(accumulate->name) + " " +
                       std::to_string(centre));
          const Result found = batch_norm(gpu(), dtype, layout, accumulate, centre),
                       expected = batch_norm(*cpu, dtype, layout, accumulate, centre);
          EXPECT_EQ(found.row, "cuda-direct");
          EXPECT_EQ(expected.row, "reference");
          const double last_place = 2 * format_of(dtype).unit_roundoff();
          for (size_t k = 0; k < found.values[0].size(); ++k) {
            const double y = found.values[0][k], wanted = expected.values[0][k];
            // The terms are multiplied in another order, and cancel.
            EXPECT_TRUE(is_same(y, wanted, false) || std::fabs(y - wanted) <= last_place * std::fabs(wanted) + 1e-12)
                << y << " " << wanted;
          }
          for (size_t i = 1; i < found.values.size(); ++i)
            for (size_t k = 0; k < found.values[i].size(); ++k)
              EXPECT_TRUE(is_same(found.values[i][k], expected.values[i][k], i == kRunningVariance))
                  << i << " " << found.values[i][k] << " " << expected.values[i][k];
        }
}

// Of 36 values near 3000 fp16 has no sum.
TEST_F(InOrder, SumsInFp16OverflowWhereThoseInBf16DoNot) {
  EXPECT_TRUE(std::isinf(batch_norm(gpu(), DType::f32, Layout::plain, &kFp16, 3000).values[1][0]));
  EXPECT_TRUE(std::isfinite(batch_norm(gpu(), DType::f32, Layout::plain, &kBf16, 3000).values[1][0]));
}

TEST_F(InOrder, AFormatThatTheKernelDoesNotRoundToIsRefused) {
  EXPECT_THROW(batch_norm(gpu(), DType::f32, Layout::plain, &kTf32, 0), Unsupported);
}

}  // namespace
}  // namespace halfmark::kernels
