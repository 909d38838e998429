// Batch norm and bias gradients of shapes that the kernels treat differently, against fp64 on the host.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

using Values = std::vector<double>;

// Far from 0 as an image is that is not normalised, with one image unlike the others.
Values image(const Shape& shape, uint64_t seed, double middle, double first_image) {
  const RandomKey key(seed);
  Values values(static_cast<size_t>(shape.elements()));
  const size_t one = values.size() / static_cast<size_t>(shape[0]);
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.uniform(i) - 0.5 + (i < one ? first_image : middle);
  return values;
}

struct Statistics {
  Values mean, variance, sum, product;  // of dy, and of dy (x - mean) / sqrt(variance + epsilon)
};

class ChannelRows : public Gpu {
 protected:
  static constexpr double kEpsilon = 1e-5;
  size_t channels = 0, pixels = 0;
  size_t channel_of(size_t i) const { return i / pixels % channels; }
  Statistics statistics(const Values& x, const Values& dy) const {
    Statistics s{Values(channels), Values(channels), Values(channels), Values(channels)};
    const double count = static_cast<double>(x.size() / channels);
    for (size_t i = 0; i < x.size(); ++i) s.mean[channel_of(i)] += x[i] / count, s.sum[channel_of(i)] += dy[i];
    for (size_t i = 0; i < x.size(); ++i) {
      const double deviation = x[i] - s.mean[channel_of(i)];
      s.variance[channel_of(i)] += deviation * deviation / count, s.product[channel_of(i)] += dy[i] * deviation;
    }
    for (size_t k = 0; k < channels; ++k) s.product[k] /= std::sqrt(s.variance[k] + kEpsilon);
    return s;
  }
  Tensor vector(const Values& values, DType dtype = DType::f32) {
    return Tensor::from(gpu(), {static_cast<int64_t>(values.size())}, dtype, values);
  }
  Tensor vector(DType dtype = DType::f32) { return Tensor::zeros(gpu(), {static_cast<int64_t>(channels)}, dtype); }
  void near(const Tensor& result, const Values& wanted, double relative, double absolute, const std::string& what) {
    const Values values = result.values();
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], wanted[i], std::fabs(wanted[i]) * relative + absolute) << what << " [" << i << "]";
  }
  void compare(const Shape& shape, DType dtype, Layout layout, double middle, double first_image);
  void compare_fused(const Tensor& x, const Tensor& dy, const Tensor& scale, const Tensor& shift, const Tensor& norm);
};

// Batch norm with ReLU beside the separate operations, `norm` being the result of the first: the same bits if nothing is
// added. An addend is the negative of the norm or 0, so that the sum is known exactly but for the rounding of the norm.
void ChannelRows::compare_fused(const Tensor& x, const Tensor& dy, const Tensor& scale, const Tensor& shift,
                                const Tensor& norm) {
  const auto like_x = [&] { return Tensor(gpu(), x.shape(), x.dtype(), x.layout()); };
  Tensor mean = vector(scale.dtype()), variance = vector(scale.dtype()), running_mean = vector(scale.dtype()),
         running_variance = vector(scale.dtype());
  for (const bool adds : {false, true}) {
    SCOPED_TRACE(adds ? "with an addend" : "without an addend");
    Tensor addend, y = like_x(), relu = like_x(), masked = like_x(), dx = like_x(), wanted = like_x(), daddend;
    Tensor dscale = vector(scale.dtype()), dshift = vector(scale.dtype()), wanted_dscale = vector(scale.dtype()),
           wanted_dshift = vector(scale.dtype());
    if (adds) {
      Values values = norm.values();
      for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? -values[i] : i % 3 == 1 ? 8 : -8;
      addend = Tensor::from(gpu(), x.shape(), x.dtype(), values, x.layout()), daddend = like_x();
    }
    run(FusedBatchNorm{.x = x,
                       .addend = addend,
                       .scale = scale,
                       .shift = shift,
                       .out = y,
                       .mean = mean,
                       .variance = variance,
                       .running_mean = running_mean,
                       .running_variance = running_variance,
                       .epsilon = kEpsilon});
    run(Activation<activations::Relu>{.x = norm, .out = relu});
    const Values fused = y.values(), separate = relu.values(), norms = norm.values(),
                 addends = adds ? addend.values() : Values();
    const double unit = format_of(x.dtype()).unit_roundoff();
    for (size_t i = 0; i < fused.size(); ++i) {
      if (!adds) {
        ASSERT_EQ(fused[i], separate[i]) << i;
        continue;
      }
      // Of a norm that is rounded, here but not there.
      const double slack = unit * std::fabs(norms[i]), sum = norms[i] + addends[i];
      ASSERT_NEAR(fused[i], sum > 0 ? sum : 0, slack + unit * (std::fabs(sum) + slack) + 0x1p-25) << i;
    }
    run(FusedBatchNormBackward{.x = x,
                               .kept = y,
                               .dy = dy,
                               .scale = scale,
                               .mean = mean,
                               .variance = variance,
                               .dx = dx,
                               .daddend = daddend,
                               .dscale = dscale,
                               .dshift = dshift,
                               .epsilon = kEpsilon});
    run(ActivationBackward<activations::Relu>{.kept = y, .dy = dy, .dx = masked});
    run(BatchNormBackward{.x = x,
                          .dy = masked,
                          .scale = scale,
                          .mean = mean,
                          .variance = variance,
                          .dx = wanted,
                          .dscale = wanted_dscale,
                          .dshift = wanted_dshift,
                          .epsilon = kEpsilon});
    ASSERT_EQ(dx.codes(), wanted.codes());
    ASSERT_EQ(dscale.codes(), wanted_dscale.codes());
    ASSERT_EQ(dshift.codes(), wanted_dshift.codes());
    ASSERT_EQ((adds ? daddend : masked).codes(), masked.codes());
  }
}

void ChannelRows::compare(const Shape& shape, DType dtype, Layout layout, double middle, double first_image) {
  SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(layout)) + " " + std::to_string(shape[0]) + "x" +
               std::to_string(shape[1]) + "x" + std::to_string(shape[2]));
  channels = static_cast<size_t>(shape[1]), pixels = static_cast<size_t>(shape[2] * shape[3]);
  const DType small = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor x = Tensor::from(gpu(), shape, dtype, image(shape, 1, middle, first_image), layout);
  const Tensor dy = Tensor::from(gpu(), shape, dtype, image(shape, 2, 0.125, 0.125), layout);
  const Values xv = x.values(), dyv = dy.values();
  const Statistics s = statistics(xv, dyv);
  Values scales(channels), shifts(channels);
  for (size_t k = 0; k < channels; ++k)
    scales[k] = 0.5 + static_cast<double>(k % 5) / 4, shifts[k] = static_cast<double>(k % 7) / 4;
  const Tensor scale = vector(scales, small), shift = vector(shifts, small);
  Tensor mean = vector(small), variance = vector(small), dscale = vector(small), dshift = vector(small);
  Tensor running_mean = vector(small), running_variance = vector(Values(channels, 1.0), small);
  const auto like_x = [&] { return Tensor(gpu(), shape, dtype, layout); };
  Tensor out = like_x(), dx = like_x(), same = like_x(), constant = like_x();

  run(BatchNorm{.x = x,
                .scale = scale,
                .shift = shift,
                .out = out,
                .mean = mean,
                .variance = variance,
                .running_mean = running_mean,
                .running_variance = running_variance,
                .momentum = 0.25,
                .epsilon = kEpsilon});
  const double unit = dtype == DType::f16    ? 0x1p-11
                      : dtype == DType::bf16 ? 0x1p-8
                      : dtype == DType::f32  ? 0x1p-24
                                             : 0x1p-53;
  const double sums = small == DType::f64 ? 0x1p-43 : 0x1p-20;  // in fp64 the host's are no better
  near(mean, s.mean, sums, sums, "mean");
  near(variance, s.variance, sums, 0, "variance");
  Values wanted(xv.size()), wanted_dx(xv.size());
  const double count = static_cast<double>(xv.size() / channels);
  const auto normalised = [&](size_t i, const Values& m, const Values& v) {
    const size_t k = channel_of(i);
    return (xv[i] - m[k]) / std::sqrt(v[k] + kEpsilon);
  };
  // Of deviations from a mean that is rounded.
  const double lost = sums * (std::fabs(middle) + 1) * 8;
  for (size_t i = 0; i < xv.size(); ++i) {
    const size_t k = channel_of(i);
    wanted[i] = scales[k] * normalised(i, s.mean, s.variance) + shifts[k];
    wanted_dx[i] = scales[k] / std::sqrt(s.variance[k] + kEpsilon) *
                   (dyv[i] - s.sum[k] / count - normalised(i, s.mean, s.variance) * s.product[k] / count);
  }
  near(out, wanted, unit * 2, lost, "out");
  run(BatchNormBackward{.x = x,
                        .dy = dy,
                        .scale = scale,
                        .mean = mean,
                        .variance = variance,
                        .dx = dx,
                        .dscale = dscale,
                        .dshift = dshift,
                        .epsilon = kEpsilon});
  near(dshift, s.sum, sums, sums * count, "dshift");
  near(dscale, s.product, sums, sums * count * (std::fabs(middle) + 1), "dscale");
  near(dx, wanted_dx, unit * 2, lost * 8, "dx");
  compare_fused(x, dy, scale, shift, out);
  Tensor bias = vector(small);
  run(BiasGradient{.dy = dy, .dbias = bias});
  near(bias, s.sum, sums, sums * count, "bias");

  const Values given_mean = mean.values(), given_variance = variance.values();
  run(BatchNormInference{.x = x,
                         .scale = scale,
                         .shift = shift,
                         .running_mean = mean,
                         .running_variance = variance,
                         .out = same,
                         .epsilon = kEpsilon});
  near(same, wanted, unit * 2, lost, "inference");
  run(BatchNormInferenceBackward{.x = x,
                                 .dy = dy,
                                 .scale = scale,
                                 .running_mean = mean,
                                 .running_variance = variance,
                                 .dx = constant,
                                 .dscale = dscale,
                                 .dshift = dshift,
                                 .epsilon = kEpsilon});
  near(dscale, s.product, sums, sums * count * (std::fabs(middle) + 1), "dscale of inference");
  for (size_t i = 0; i < xv.size(); ++i)
    wanted_dx[i] = dyv[i] * scales[channel_of(i)] / std::sqrt(given_variance[channel_of(i)] + kEpsilon);
  near(constant, wanted_dx, unit * 2, sums, "dx of inference");
}

TEST_F(ChannelRows, EveryShapeInBothLayoutsAgreesWithFp64) {
  const Shape shapes[] = {{3, 8, 7, 7},   {2, 64, 14, 14}, {2, 12, 6, 6},  {5, 3, 3, 3},   {2, 200, 4, 4},
                          {1, 1, 90, 90}, {2, 16, 40, 40}, {2, 5, 31, 37}, {1, 33, 2, 10}, {70, 2, 1, 1}};
  for (const Shape& shape : shapes)
    for (const Layout layout : {Layout::plain, Layout::nhwc})
      for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
        compare(shape, dtype, layout, 0.25, 0.25);
}

TEST_F(ChannelRows, AMeanFarFromZeroAndAnUnlikeImageCostNoAccuracy) {
  for (const Layout layout : {Layout::plain, Layout::nhwc}) {
    compare({9, 8, 24, 24}, DType::f32, layout, 1000, 1000);
    compare({9, 8, 24, 24}, DType::f32, layout, 0, 100);
    compare({9, 7, 23, 23}, DType::f32, layout, 0, 100);
  }
}

// As PyTorch's relu, forward and backward.
TEST_F(ChannelRows, ANanPassesBatchNormWithRelu) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  channels = 1;
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Shape shape{1, 1, 2, 4};
    const Tensor x = Tensor::from(gpu(), shape, dtype, Values{-1, 1, -1, 1, -1, 1, -1, 1}),
                 addend = Tensor::from(gpu(), shape, dtype, Values{nan, 0.5, 0.25, 0, 4, -4, 2, -2}),
                 scale = vector(Values{1}), shift = vector(Values{0});
    Tensor y(gpu(), shape, dtype), mean = vector(), variance = vector(), running_mean = vector(),
                                   running_variance = vector(), dx(gpu(), shape, dtype), daddend(gpu(), shape, dtype),
                                   dscale = vector(), dshift = vector();
    run(FusedBatchNorm{.x = x,
                       .addend = addend,
                       .scale = scale,
                       .shift = shift,
                       .out = y,
                       .mean = mean,
                       .variance = variance,
                       .running_mean = running_mean,
                       .running_variance = running_variance,
                       .epsilon = 0});
    const Values result = y.values();
    EXPECT_TRUE(std::isnan(result[0])) << name_of(dtype);
    EXPECT_EQ(Values(result.begin() + 1, result.end()), (Values{1.5, 0, 1, 3, 0, 1, 0})) << name_of(dtype);
    const Tensor dy = Tensor::from(gpu(), shape, dtype, Values{1, 2, 4, 8, 16, 32, 64, 128});
    run(FusedBatchNormBackward{.x = x,
                               .kept = y,
                               .dy = dy,
                               .scale = scale,
                               .mean = mean,
                               .variance = variance,
                               .dx = dx,
                               .daddend = daddend,
                               .dscale = dscale,
                               .dshift = dshift,
                               .epsilon = 0});
    EXPECT_EQ(daddend.values(), (Values{1, 2, 0, 8, 16, 0, 64, 0})) << name_of(dtype);
    EXPECT_EQ(dshift.values()[0], 91) << name_of(dtype);
  }
}

// The second image of an operation may have the other layout: the same bits.
TEST_F(ChannelRows, ASecondImageMayHaveTheOtherLayout) {
  const Shape shape{2, 6, 5, 7};
  channels = 6;
  const Values xv = image(shape, 1, 0, 0), yv = image(shape, 2, 0, 0), zv = image(shape, 3, 0, 0);
  const Tensor scale = vector(Values(6, 0.75)), shift = vector(Values(6, 0.25)), mean = vector(Values(6, 0.125)),
               variance = vector(Values(6, 0.5));
  const auto results = [&](Layout first, Layout second) {
    const Tensor x = Tensor::from(gpu(), shape, DType::f16, xv, first),
                 y = Tensor::from(gpu(), shape, DType::f16, yv, second),
                 kept = Tensor::from(gpu(), shape, DType::f16, zv, second);
    std::vector<Values> all;
    const auto fresh = [&] { return Tensor(gpu(), shape, DType::f16, Layout::any); };
    Tensor sum = fresh(), relu = fresh(), dx = fresh(), constant = fresh(), fused = fresh(), fused_dx = fresh(),
           daddend = fresh(), a = vector(), b = vector(), c = vector(), d = vector();
    run(Add{.a = x, .b = y, .out = sum});
    run(ActivationBackward<activations::Relu>{.kept = x, .dy = y, .dx = relu});
    run(BatchNormBackward{
        .x = x, .dy = y, .scale = scale, .mean = mean, .variance = variance, .dx = dx, .dscale = a, .dshift = b});
    all.push_back(a.values()), all.push_back(b.values());
    run(BatchNormInferenceBackward{.x = x,
                                   .dy = y,
                                   .scale = scale,
                                   .running_mean = mean,
                                   .running_variance = variance,
                                   .dx = constant,
                                   .dscale = a,
                                   .dshift = b});
    run(FusedBatchNorm{.x = x,
                       .addend = y,
                       .scale = scale,
                       .shift = shift,
                       .out = fused,
                       .mean = a,
                       .variance = b,
                       .running_mean = c,
                       .running_variance = d});
    run(FusedBatchNormBackward{.x = x,
                               .kept = kept,
                               .dy = y,
                               .scale = scale,
                               .mean = mean,
                               .variance = variance,
                               .dx = fused_dx,
                               .daddend = daddend,
                               .dscale = a,
                               .dshift = b});
    all.push_back(a.values()), all.push_back(b.values());
    for (const Tensor* one : {&sum, &relu, &dx, &constant, &fused, &fused_dx, &daddend}) {
      EXPECT_EQ(one->layout(), first);
      all.push_back(one->values());
    }
    return all;
  };
  for (const Layout layout : {Layout::plain, Layout::nhwc})
    EXPECT_EQ(results(layout, layout == Layout::plain ? Layout::nhwc : Layout::plain), results(layout, layout));
}

TEST_F(ChannelRows, InfinitiesStayInTheirChannel) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Layout layout : {Layout::plain, Layout::nhwc})
    for (const size_t place : {0, 700}) {
      const Shape shape{4, 8, 10, 10};
      channels = 8, pixels = 100;
      Values values = image(shape, 3, 0, 0);
      values[place] = infinity;
      const Tensor x = Tensor::from(gpu(), shape, DType::f16, values, layout), one = vector(Values(channels, 1.0));
      Tensor out(gpu(), shape, DType::f16, layout), mean = vector(), variance = vector();
      Tensor running_mean = vector(), running_variance = vector(Values(channels, 1.0));
      run(BatchNorm{.x = x,
                    .scale = one,
                    .shift = vector(),
                    .out = out,
                    .mean = mean,
                    .variance = variance,
                    .running_mean = running_mean,
                    .running_variance = running_variance});
      for (size_t k = 0; k < channels; ++k) {
        const bool hit = k == channel_of(place);
        EXPECT_EQ(mean.values()[k] == infinity, hit) << k;
        EXPECT_EQ(std::isnan(variance.values()[k]), hit) << k;
      }
      const Values results = out.values();
      for (size_t i = 0; i < results.size(); ++i)
        ASSERT_EQ(std::isnan(results[i]), channel_of(i) == channel_of(place)) << i;
    }
}

TEST_F(ChannelRows, EqualValuesHaveNoVariance) {
  for (const Layout layout : {Layout::plain, Layout::nhwc}) {
    channels = 16, pixels = 30 * 30;
    const Shape shape{2, 16, 30, 30};
    const Tensor x =
        Tensor::from(gpu(), shape, DType::f32, Values(static_cast<size_t>(shape.elements()), 1.0 / 3), layout);
    Tensor out(gpu(), shape, DType::f32, layout), mean = vector(), variance = vector();
    Tensor running_mean = vector(), running_variance = vector(Values(channels, 1.0));
    run(BatchNorm{.x = x,
                  .scale = vector(Values(channels, 1.0)),
                  .shift = vector(),
                  .out = out,
                  .mean = mean,
                  .variance = variance,
                  .running_mean = running_mean,
                  .running_variance = running_variance});
    for (const double v : variance.values()) EXPECT_TRUE(v >= 0 && v <= 1e-15) << v;
  }
}

TEST_F(ChannelRows, ImagesMayBeginAnywhere) {
  const Shape shape{6, 8, 5, 5};
  channels = 8, pixels = 25;
  const Tensor all = Tensor::from(gpu(), shape, DType::bf16, image(shape, 5, 1, 1));
  const Shape matrix{300, 9};
  const Tensor rows = Tensor::from(gpu(), matrix, DType::f16, image(matrix, 6, 1, 1));
  for (const int64_t first : {1, 2}) {
    const Tensor dy = all.slice(first, 3);
    Tensor bias = vector();
    run(BiasGradient{.dy = dy, .dbias = bias});
    const Values values = dy.values();
    near(bias, statistics(values, values).sum, 1e-6, 0, "bias");
  }
  channels = 9, pixels = 1;
  for (const int64_t first : {0, 1, 8}) {
    const Tensor dy = rows.slice(first, 250);
    Tensor bias = vector();
    run(BiasGradient{.dy = dy, .dbias = bias});
    const Values values = dy.values();
    near(bias, statistics(values, values).sum, 1e-6, 0, "bias");
  }
}

TEST_F(ChannelRows, WhereAnOperandBeginsDoesNotChangeABit) {
  const Shape shape{4, 8, 10, 20};
  const int64_t elements = shape.elements();
  channels = 8, pixels = 200;
  for (const DType dtype : {DType::f16, DType::f32}) {
    Values values = image({1, 1, 1, elements + 8}, 7, 1, 1);
    const Tensor all = Tensor::from(gpu(), {elements + 8}, dtype, values);
    for (const int64_t first : {1, 2, 4}) {
      const Values part(values.begin() + first, values.begin() + first + elements);
      std::vector<std::vector<unsigned char>> found;
      for (const Tensor& x : {Tensor::from(gpu(), shape, dtype, part), all.slice(first, elements).reshaped(shape)}) {
        Tensor out(gpu(), shape, dtype), dx(gpu(), shape, dtype), mean = vector(), variance = vector();
        Tensor running_mean = vector(), running_variance = vector(), dscale = vector(), dshift = vector();
        const Tensor scale = vector(Values(channels, 1.0)), shift = vector();
        run(BatchNorm{.x = x,
                      .scale = scale,
                      .shift = shift,
                      .out = out,
                      .mean = mean,
                      .variance = variance,
                      .running_mean = running_mean,
                      .running_variance = running_variance});
        run(BatchNormBackward{.x = x,
                              .dy = x,
                              .scale = scale,
                              .mean = mean,
                              .variance = variance,
                              .dx = dx,
                              .dscale = dscale,
                              .dshift = dshift});
        for (const Tensor& result : {out, mean, variance, dx, dscale, dshift}) found.push_back(result.codes());
      }
      for (size_t i = 0; i < 6; ++i) EXPECT_EQ(found[i], found[i + 6]) << i;
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels
