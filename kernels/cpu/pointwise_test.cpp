// 1x1 convolutions of the oneDNN rows, which compute some of them as products of matrices, against loops over all elements.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/tensor/random.h"

#if HALFMARK_ONEDNN

namespace halfmark::kernels {
namespace {

struct Case {
  std::string name;
  Shape x, w;  // [n, in, h, w], [out, in / groups, 1, 1]
  Window window{};
  int groups = 1;

  Shape y() const {
    return {x[0], w[0], window_extent(x[2], 1, window.stride_h, window.pad_h, window.dilation_h),
            window_extent(x[3], 1, window.stride_w, window.pad_w, window.dilation_w)};
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{"more outputs", {3, 17, 5, 7}, {40, 17, 1, 1}},
                                        {"more inputs", {3, 40, 5, 7}, {17, 40, 1, 1}},
                                        {"one pixel", {5, 64, 1, 1}, {33, 64, 1, 1}},
                                        {"filter larger than images", {1, 96, 2, 3}, {112, 96, 1, 1}},
                                        {"padded", {2, 16, 5, 7}, {24, 16, 1, 1}, {.pad_h = 1, .pad_w = 1}},
                                        {"padded in width", {2, 16, 5, 7}, {24, 16, 1, 1}, {.pad_w = 1}},
                                        {"padded in height", {2, 16, 5, 7}, {24, 16, 1, 1}, {.pad_h = 1}},
                                        {"stride in height", {2, 16, 5, 7}, {24, 16, 1, 1}, {.stride_h = 2}},
                                        {"stride in width", {2, 16, 5, 7}, {24, 16, 1, 1}, {.stride_w = 2}},
                                        {"groups", {2, 32, 5, 7}, {48, 16, 1, 1}, {}, 2}};
  return all;
}

// The sums of products over all elements, and of their magnitudes.
struct Sums {
  std::vector<double> value, magnitude;
  explicit Sums(const Shape& shape)
      : value(static_cast<size_t>(shape.elements())), magnitude(static_cast<size_t>(shape.elements())) {}
  void add(int64_t at, double product) {
    value[static_cast<size_t>(at)] += product, magnitude[static_cast<size_t>(at)] += std::fabs(product);
  }
};

// f(index in x, in w, in y) for every product of the convolution.
template <class F>
void each_product(const Case& c, F f) {
  const Shape y = c.y();
  const int64_t inputs = c.w[1], outputs = c.w[0] / c.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t o = 0; o < y[1]; ++o)
      for (int64_t h = 0; h < y[2]; ++h)
        for (int64_t w = 0; w < y[3]; ++w) {
          const int64_t from_h = h * c.window.stride_h - c.window.pad_h,
                        from_w = w * c.window.stride_w - c.window.pad_w;
          if (from_h < 0 || from_h >= c.x[2] || from_w < 0 || from_w >= c.x[3]) continue;
          for (int64_t i = 0; i < inputs; ++i) {
            const int64_t channel = o / outputs * inputs + i;
            f(((n * c.x[1] + channel) * c.x[2] + from_h) * c.x[3] + from_w, o * inputs + i,
              ((n * y[1] + o) * y[2] + h) * y[3] + w);
          }
        }
}

Tensor drawn(Device& device, const Shape& shape, DType dtype, uint64_t seed, Layout layout) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return Tensor::from(device, shape, dtype, values, layout);
}

template <class Op>
const Kernel<Op>& onednn_row(const Device& device) {
  for (const Kernel<Op>& kernel : device.kernels().of<Op>())
    if (kernel.name == "onednn") return kernel;
  throw Error("no row onednn");
}

template <class Op>
void run_row(Device& device, const Op& op) {
  const Kernel<Op>& kernel = onednn_row<Op>(device);
  const Refusal refusal = kernel.refuses(device, op);
  ASSERT_FALSE(refusal) << *refusal;
  kernel.run(device, op);
}

// Products are exact in fp32 or rounded once (fp32), sums of up to `terms` of them are in fp32, and the result is rounded once
// to its dtype: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
void expect_sums(const Tensor& found, const Sums& sums, int64_t terms) {
  const double rounding = found.dtype() == DType::bf16 ? 0x1p-8 : 0x1p-24,
               steps = static_cast<double>(terms + 1) * 0x1p-24;
  const std::vector<double> values = found.values();
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], sums.value[i], rounding * std::fabs(sums.value[i]) + steps * sums.magnitude[i])
        << "element " << i;
}

void check(const Case& c, DType dtype, Layout layout) {
  CpuDevice device;
  SCOPED_TRACE(c.name + " " + std::string(name_of(dtype)) + (layout == Layout::nhwc ? " nhwc" : " plain"));
  const Tensor x = drawn(device, c.x, dtype, 1, layout), dy = drawn(device, c.y(), dtype, 2, layout),
               w = drawn(device, c.w, dtype, 3, Layout::plain);
  const std::vector<double> of_x = x.values(), of_dy = dy.values(), of_w = w.values();
  Sums y_sums(c.y()), dx_sums(c.x), dw_sums(c.w);
  each_product(c, [&](int64_t in_x, int64_t in_w, int64_t in_y) {
    const double a = of_x[static_cast<size_t>(in_x)], b = of_w[static_cast<size_t>(in_w)],
                 d = of_dy[static_cast<size_t>(in_y)];
    y_sums.add(in_y, a * b), dx_sums.add(in_x, d * b), dw_sums.add(in_w, d * a);
  });
  Tensor y(device, c.y(), dtype, Layout::any), dx(device, c.x, dtype, Layout::any), dw(device, c.w, dtype);
  run_row(device, Conv2d{.x = x, .w = w, .out = y, .window = c.window, .groups = c.groups});
  expect_sums(y, y_sums, c.w[1]);
  run_row(device, Conv2dBackwardData{.dy = dy, .w = w, .dx = dx, .window = c.window, .groups = c.groups});
  expect_sums(dx, dx_sums, c.w[0] / c.groups);
  run_row(device, Conv2dBackwardWeights{.x = x, .dy = dy, .dw = dw, .window = c.window, .groups = c.groups});
  expect_sums(dw, dw_sums, c.y()[0] * c.y()[2] * c.y()[3]);
}

bool computes_in_bf16() { return CpuDevice().image_layout(DType::bf16) == Layout::nhwc; }

TEST(Pointwise, ConvolutionsOfOnePixelAreSumsOverTheirChannels) {
  for (const Case& c : cases())
    for (const Layout layout : {Layout::nhwc, Layout::plain}) {
      check(c, DType::f32, layout);
      if (computes_in_bf16()) check(c, DType::bf16, layout);
    }
}

// A grouped convolution leaves its result in blocks of channels.
TEST(Pointwise, ConvolutionsReadImagesInBlocksOfChannels) {
  CpuDevice device;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && !computes_in_bf16()) continue;
    const Case c{"blocks", {1, 64, 4, 3}, {80, 64, 1, 1}};
    const Tensor first = drawn(device, c.x, dtype, 4, Layout::plain),
                 depthwise = drawn(device, {64, 1, 1, 1}, dtype, 5, Layout::plain),
                 w = drawn(device, c.w, dtype, 6, Layout::plain);
    Tensor x(device, c.x, dtype, Layout::any), y(device, c.y(), dtype, Layout::any);
    run_row(device, Conv2d{.x = first, .w = depthwise, .out = x, .groups = 64});
    if (x.layout() != Layout::opaque) GTEST_SKIP() << "this oneDNN leaves no blocks of channels here";
    run_row(device, Conv2d{.x = x, .w = w, .out = y});
    const std::vector<double> of_x = x.values(), of_w = w.values();
    Sums sums(c.y());
    each_product(c, [&](int64_t in_x, int64_t in_w, int64_t in_y) {
      sums.add(in_y, of_x[static_cast<size_t>(in_x)] * of_w[static_cast<size_t>(in_w)]);
    });
    expect_sums(y, sums, c.w[1]);
  }
}

}  // namespace
}  // namespace halfmark::kernels

#endif
