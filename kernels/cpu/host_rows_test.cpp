// Parts of the host loops: elements as they are read and written, against convert() for every bf16 code; the largest element;
// rows of attention with no score to attend to; batch norm over more pixels than one thread takes at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/devices.h"
#include "kernels/number/convert.h"

namespace halfmark::kernels::host {
namespace {

constexpr int64_t kCodes = 65536;

Tensor all_codes(Device& device) {
  Tensor tensor(device, {kCodes}, DType::bf16);
  tensor.materialize(Layout::plain);
  auto* codes = static_cast<uint16_t*>(tensor.data());
  for (int64_t i = 0; i < kCodes; ++i) codes[i] = static_cast<uint16_t>(i);
  return tensor;
}

TEST(HostRows, ReadEveryBf16CodeAsConvertDoes) {
  const auto device = open_device("cpu");
  const Tensor tensor = all_codes(*device);
  std::vector<float> found(kCodes), expected(kCodes);
  EXPECT_EQ(read(tensor, 0, kCodes, found.data()), found.data());
  convert(DType::bf16, tensor.data(), DType::f32, expected.data(), kCodes);
  for (size_t i = 0; i < kCodes; ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << i;
    } else {
      EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(float)), 0) << i;
    }
  }
}

// Every code, and the fp32 numbers just below, at and just above half way to the next.
TEST(HostRows, WriteFp32AsBf16AsConvertDoes) {
  const auto device = open_device("cpu");
  const Tensor codes = all_codes(*device);
  for (const uint32_t tail : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
    std::vector<float> values(kCodes);
    for (uint32_t i = 0; i < kCodes; ++i) {
      const uint32_t bits = i << 16 | tail;
      std::memcpy(&values[i], &bits, sizeof bits);
    }
    Tensor found(*device, {kCodes}, DType::bf16);
    found.materialize(Layout::plain);
    written(found, 0, kCodes, values.data());
    std::vector<uint16_t> expected(kCodes);
    convert(DType::f32, values.data(), DType::bf16, expected.data(), kCodes);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), sizeof(uint16_t) * kCodes), 0) << tail;
  }
}

TEST(HostRows, FindTheLargestAtEveryPlace) {
  for (const int64_t count : {1, 7, 31, 32, 33, 64, 100})
    for (int64_t place = 0; place < count; ++place) {
      std::vector<float> x(static_cast<size_t>(count), -3.0F);
      x[static_cast<size_t>(place)] = 2.0F;
      EXPECT_EQ(largest_of(x.data(), count), 2.0F) << place << " of " << count;
    }
}

// Key 0 is masked by -infinity for both queries; the score of key 1 is NaN for query 1 only.
TEST(HostRows, AttentionGivesZerosForARowThatIsMaskedAndNaNForARowWithANaN) {
  const auto device = open_device("cpu");
  constexpr double kMasked = -std::numeric_limits<double>::infinity(),
                   kNoNumber = std::numeric_limits<double>::quiet_NaN();
  const auto tensor = [&](const Shape& shape, const std::vector<double>& values) {
    return Tensor::from(*device, shape, DType::f32, values);
  };
  const Tensor q = tensor({1, 1, 2, 1}, {0, 1}), k = tensor({1, 1, 2, 1}, {1, 1}), v = tensor({1, 1, 2, 1}, {3, 4}),
               mask = tensor({1, 2, 2}, {kMasked, kMasked, kMasked, kNoNumber});
  Tensor out(*device, {1, 1, 2, 1}, DType::f32), log_sum(*device, {1, 1, 2}, DType::f32);
  run(Attention{.q = q, .k = k, .v = v, .mask = mask, .out = out, .log_sum = log_sum});
  EXPECT_EQ(out.values()[0], 0);
  EXPECT_EQ(log_sum.values()[0], kMasked);
  EXPECT_TRUE(std::isnan(out.values()[1]));
}

// Row i of v, q and dout has a NaN: queries and keys that do not see it stay finite, as in the row for fp64.
TEST(HostRows, AttentionHasNoNaNFromKeysAndQueriesThatARowDoesNotSee) {
  const auto device = open_device("cpu");
  for (const int64_t d : {4, 16})
    for (const int64_t bad : {0, 7, 8}) {
      constexpr int64_t kLength = 9;
      const Shape shape{1, 1, kLength, d};
      const auto tensor = [&](bool has_nan, DType dtype) {
        std::vector<double> values(static_cast<size_t>(shape.elements()), 0.5);
        if (has_nan) values[static_cast<size_t>(bad * d)] = std::numeric_limits<double>::quiet_NaN();
        return Tensor::from(*device, shape, dtype, values);
      };
      const auto nans = [&](const Tensor& t) {
        std::vector<bool> found;
        for (const double value : t.values()) found.push_back(std::isnan(value));
        return found;
      };
      std::vector<std::vector<bool>> of_f32, of_f64;
      for (const DType dtype : {DType::f32, DType::f64}) {
        auto& found = dtype == DType::f32 ? of_f32 : of_f64;
        const Tensor fine = tensor(false, dtype), broken = tensor(true, dtype);
        Tensor out(*device, shape, dtype), log_sum(*device, {1, 1, kLength}, dtype), dq(*device, shape, dtype),
            dk(*device, shape, dtype), dv(*device, shape, dtype);
        const Tensor none;
        run(Attention{.q = fine, .k = fine, .v = fine, .mask = none, .out = out, .log_sum = log_sum, .causal = true});
        run(AttentionBackward{.q = fine,
                              .k = fine,
                              .v = fine,
                              .mask = none,
                              .out = out,
                              .log_sum = log_sum,
                              .dout = broken,
                              .dq = dq,
                              .dk = dk,
                              .dv = dv,
                              .causal = true});
        for (const Tensor* one : {&dq, &dk, &dv}) found.push_back(nans(*one));
        run(Attention{.q = fine, .k = fine, .v = broken, .mask = none, .out = out, .log_sum = log_sum, .causal = true});
        found.push_back(nans(out));
      }
      EXPECT_EQ(of_f32, of_f64) << "d " << d << ", NaN in row " << bad;
      EXPECT_TRUE(of_f32.back()[static_cast<size_t>((kLength - 1) * d)]);  // the last query sees all keys
      EXPECT_EQ(of_f32.back().front(), bad == 0);
    }
}

// Blocks of whole pixels end within the share of a thread where 5 channels do not divide it. Every number is a small integer, so
// that the sums are exact.
TEST(HostRows, BatchNormCountsEveryPixelOnce) {
  const auto device = open_device("cpu");
  const Shape shape{3, 5, 61, 61}, c{5};
  const auto channels = static_cast<size_t>(c[0]), count = static_cast<size_t>(shape.elements()),
             pixels = static_cast<size_t>(61 * 61);
  std::vector<double> x(count), dy(count), mean(channels), variance(channels), sum(channels), product(channels);
  const auto channel_of = [&](size_t i) { return i / pixels % channels; };
  const double all = static_cast<double>(count) / static_cast<double>(channels);
  for (size_t i = 0; i < count; ++i) {
    x[i] = static_cast<double>(i * 7 % 11) - 5, dy[i] = static_cast<double>(i * i % 5) - 1;
    mean[channel_of(i)] += x[i] / all, sum[channel_of(i)] += dy[i];
  }
  for (size_t i = 0; i < count; ++i) {
    const double off = x[i] - mean[channel_of(i)];
    variance[channel_of(i)] += off * off / all, product[channel_of(i)] += dy[i] * off;
  }
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Layout layout : {Layout::plain, Layout::nhwc}) {
      const Tensor images = Tensor::from(*device, shape, dtype, x, layout),
                   gradient = Tensor::from(*device, shape, dtype, dy, layout);
      const Tensor scale = Tensor::from(*device, c, DType::f32, std::vector<double>(channels, 1)),
                   shift = Tensor::zeros(*device, c, DType::f32);
      Tensor out(*device, shape, dtype, layout), dx(*device, shape, dtype, layout), means(*device, c, DType::f32),
          variances(*device, c, DType::f32), dscale(*device, c, DType::f32), dshift(*device, c, DType::f32);
      Tensor running_mean = Tensor::zeros(*device, c, DType::f32),
             running_variance = Tensor::zeros(*device, c, DType::f32);
      run(BatchNorm{.x = images,
                    .scale = scale,
                    .shift = shift,
                    .out = out,
                    .mean = means,
                    .variance = variances,
                    .running_mean = running_mean,
                    .running_variance = running_variance,
                    .epsilon = 0});
      run(BatchNormBackward{.x = images,
                            .dy = gradient,
                            .scale = scale,
                            .mean = means,
                            .variance = variances,
                            .dx = dx,
                            .dscale = dscale,
                            .dshift = dshift,
                            .epsilon = 0});
      for (size_t i = 0; i < channels; ++i) {
        EXPECT_NEAR(means.values()[i], mean[i], 0x1p-23 * 5) << name_of(dtype);
        EXPECT_NEAR(variances.values()[i], variance[i], 0x1p-22 * 10) << name_of(dtype);
        EXPECT_EQ(dshift.values()[i], sum[i]) << name_of(dtype);
        EXPECT_NEAR(dscale.values()[i], product[i] / std::sqrt(variance[i]), 0x1p-20 * all) << name_of(dtype);
      }
      // Of the rounding to the dtype, and of at most 2^-20 of fp32.
      const double near = format_of(dtype).unit_roundoff() + 0x1p-20;
      const std::vector<double> y = out.values(), slopes = dx.values();
      for (size_t i = 0; i < count; ++i) {
        const size_t k = channel_of(i);
        const double inverse = 1 / std::sqrt(variance[k]), off = x[i] - mean[k];
        ASSERT_NEAR(y[i], off * inverse, 4 * near) << name_of(dtype) << " " << i;
        ASSERT_NEAR(slopes[i], inverse * (dy[i] - sum[k] / all - off * product[k] / (variance[k] * all)), 4 * near)
            << name_of(dtype) << " " << i;
      }
    }
}

}  // namespace
}  // namespace halfmark::kernels::host
