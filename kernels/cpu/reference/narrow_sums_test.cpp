// Statistics of batch norm with sums that are rounded to a narrow format after each addition.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels {
namespace {

struct Statistics {
  double mean, variance;
};

// Of one channel of 4 x 16 values: batch norm of x in f32 with momentum 1.
Statistics statistics_of(const std::vector<double>& values, const Format* accumulate) {
  const auto device = open_device("cpu");
  const Tensor x = Tensor::from(*device, {4, 1, 4, 4}, DType::f32, values),
               scale = Tensor::from(*device, {1}, DType::f32, std::vector<double>{1}),
               shift = Tensor::zeros(*device, {1}, DType::f32);
  Tensor out(*device, x.shape(), DType::f32), mean(*device, {1}, DType::f32), variance(*device, {1}, DType::f32),
      running_mean = Tensor::zeros(*device, {1}, DType::f32),
      running_variance = Tensor::zeros(*device, {1}, DType::f32);
  run(BatchNorm{.x = x,
                .scale = scale,
                .shift = shift,
                .out = out,
                .mean = mean,
                .variance = variance,
                .running_mean = running_mean,
                .running_variance = running_variance,
                .accumulate = accumulate});
  return {mean.values()[0], variance.values()[0]};
}

std::vector<double> sample() {
  std::vector<double> values;
  for (int i = 0; i < 64; ++i) values.push_back(40 + (i * 37 % 64) * 0.75);
  return values;
}

// numpy 2.4.6: s = f(0); for v in x: s = f(float(s) + v); m = s / 64; s = f(0); for v in x: s = f(float(s) + (v - m)**2)
// with x[i] = 40 + (i * 37 % 64) * 0.75, and f = numpy.float16; for bf16 f rounds numpy.float32 to 8 bits by its codes.
TEST(NarrowSums, AreRoundedAfterEachAddition) {
  const Statistics f16 = statistics_of(sample(), &kFp16), bf16 = statistics_of(sample(), &kBf16),
                   exact = statistics_of(sample(), nullptr), f64 = statistics_of(sample(), &kFp64);
  EXPECT_EQ(exact.mean, 63.625);
  EXPECT_EQ(exact.variance, 191.953125);
  EXPECT_EQ(f64.variance, exact.variance);
  EXPECT_EQ(f16.mean, 63.6875);
  EXPECT_EQ(f16.variance, 192.0);
  EXPECT_EQ(bf16.mean, 63.5);
  EXPECT_EQ(bf16.variance, 193.0);
}

// A deviation of 256 has the square 65536, beyond fp16's 65504.
TEST(NarrowSums, OverflowInFp16ForDeviationsFrom256On) {
  std::vector<double> values(64, 0.0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? 256 : -256;
  EXPECT_EQ(statistics_of(values, &kFp16).variance, INFINITY);
  EXPECT_EQ(statistics_of(values, &kFp16).mean, 0);
  EXPECT_EQ(statistics_of(values, &kBf16).variance, 65536);
  EXPECT_EQ(statistics_of(values, nullptr).variance, 65536);
}

}  // namespace
}  // namespace halfmark::kernels
