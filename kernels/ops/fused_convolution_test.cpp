// Convolutions with bias and ReLU beside the separate operations, on every row of the host's devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/product_work.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

void each_fused_row(const std::function<void(Device&, const Kernel<FusedConv2d>&)>& f) {
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    for (const Kernel<FusedConv2d>& row : device->kernels().of<FusedConv2d>()) {
      SCOPED_TRACE(std::string(name) + " " + std::string(row.name));
      f(*device, row);
    }
  }
}

Tensor drawn_image(Device& device, const Shape& shape, Layout layout, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return Tensor::from(device, shape, DType::f64, values, layout);
}

// A convolution of f64, whose roundings are far below those of its numbers.
struct BiasedConvolution {
  Device& device;
  Layout layout;
  Tensor x = drawn_image(device, {2, 4, 5, 7}, layout, 1), w = drawn_image(device, {6, 2, 3, 3}, layout, 2),
         bias = drawn_image(device, {6}, Layout::plain, 3);
  Tensor out{device, {2, 6, 3, 4}, DType::f64, layout};
  FusedConv2d op(Tensor& into, const Tensor& added, bool relu) const {
    return {.x = x,
            .w = w,
            .bias = added,
            .out = into,
            .relu = relu,
            .window = {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
            .groups = 2,
            .math = {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64}};
  }
};

TEST(FusedConvolution, AgreesWithSeparateOperations) {
  int taken = 0;
  each_fused_row([&](Device& device, const Kernel<FusedConv2d>& row) {
    for (const Layout layout : {Layout::plain, Layout::nhwc})
      for (const bool relu : {false, true})
        for (const bool has_bias : {false, true}) {
          BiasedConvolution one{device, layout};
          const Tensor none;
          const FusedConv2d op = one.op(one.out, has_bias ? one.bias : none, relu);
          if (row.refuses(device, op)) continue;
          ++taken;
          run_with(row, op);
          Tensor wanted(device, one.out.shape(), DType::f64, layout);
          run(op.product(wanted));
          if (has_bias) run(AddBias{.x = wanted, .bias = one.bias, .out = wanted});
          if (relu) run(Activation<activations::Relu>{.x = wanted, .out = wanted});
          const std::vector<double> a = one.out.values(), b = wanted.values();
          for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-13 * (1 + std::fabs(b[i]))) << i;
        }
  });
  EXPECT_GE(taken, 16);
}

// Integers, so that every order of sums gives the same: pointwise ones as products of matrices, ones whose layout the library
// chooses, grouped and dilated ones.
TEST(FusedConvolution, HasTheNumbersOfSeparateOperationsInEveryLayout) {
  struct Form {
    int64_t in, out, kernel;
    int groups, dilation;
    Layout images, result;
  };
  constexpr Form kForms[] = {
      {8, 16, 1, 1, 1, Layout::nhwc, Layout::any},   {8, 16, 1, 1, 1, Layout::nhwc, Layout::nhwc},
      {3, 5, 1, 1, 1, Layout::plain, Layout::plain}, {16, 32, 3, 1, 1, Layout::plain, Layout::any},
      {16, 16, 3, 16, 1, Layout::nhwc, Layout::any}, {4, 6, 3, 2, 2, Layout::plain, Layout::any}};
  int taken = 0;
  each_fused_row([&](Device& device, const Kernel<FusedConv2d>& row) {
    for (const Form& form : kForms)
      for (const bool relu : {false, true}) {
        const auto integers = [&](const Shape& shape, int most, uint64_t seed) {
          std::vector<double> values(static_cast<size_t>(shape.elements()));
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<double>(RandomKey(seed).below(i, 2 * static_cast<uint64_t>(most) + 1)) - most;
          return values;
        };
        const Shape image{2, form.in, 6, 5}, filter{form.out, form.in / form.groups, form.kernel, form.kernel};
        std::vector<double> added = integers({form.out}, 20, 3);
        added[1] = NAN, added[2] = HUGE_VAL;
        const Tensor x = Tensor::from(device, image, DType::f32, integers(image, 3, 1), form.images),
                     w = Tensor::from(device, filter, DType::f32, integers(filter, 3, 2)),
                     bias = Tensor::from(device, {form.out}, DType::f32, added);
        const int pad = form.kernel == 1 ? 0 : form.dilation;
        const Window window{.pad_h = pad, .pad_w = pad, .dilation_h = form.dilation, .dilation_w = form.dilation};
        Tensor out(device, {2, form.out, 6, 5}, DType::f32, form.result), apart(device, out.shape(), DType::f32);
        const FusedConv2d op{
            .x = x, .w = w, .bias = bias, .out = out, .relu = relu, .window = window, .groups = form.groups};
        if (row.refuses(device, op)) continue;
        ++taken;
        run_with(row, op);
        run(op.product(apart));
        const std::vector<double> found = out.values(), sums = apart.values();
        for (size_t i = 0; i < found.size(); ++i) {
          const double z = sums[i] + added[i / 30 % added.size()], wanted = relu && z < 0 ? 0 : z;
          ASSERT_TRUE(std::isnan(wanted) ? std::isnan(found[i]) : found[i] == wanted)
              << i << ": " << found[i] << ", not " << wanted << ", " << form.kernel << " " << form.groups;
        }
      }
  });
  EXPECT_GE(taken, 24);
}

// 1 + 2^-8 + 2^-9 in bf16, which has steps of 2^-7 there: in one rounding 1 + 2^-7, in two 1 and then 1.
TEST(FusedConvolution, TheResultIsRoundedOnce) {
  int taken = 0;
  each_fused_row([&](Device& device, const Kernel<FusedConv2d>& row) {
    const double values[] = {1, 0x1p-8}, ones[] = {1, 1}, small[] = {0x1p-9};
    const Tensor x = Tensor::from(device, {1, 2, 1, 1}, DType::bf16, values),
                 w = Tensor::from(device, {1, 2, 1, 1}, DType::bf16, ones),
                 bias = Tensor::from(device, {1}, DType::bf16, small);
    Tensor once(device, {1, 1, 1, 1}, DType::bf16);
    const FusedConv2d op{.x = x, .w = w, .bias = bias, .out = once};
    if (row.refuses(device, op)) return;
    ++taken;
    run_with(row, op);
    EXPECT_EQ(once.values()[0], 1 + 0x1p-7);
  });
  EXPECT_GE(taken, 4);
}

TEST(FusedConvolution, ReluKeepsNanAndInfinity) {
  each_fused_row([](Device& device, const Kernel<FusedConv2d>& row) {
    const double added[] = {static_cast<double>(NAN), HUGE_VAL, -1};
    const Tensor x = Tensor::zeros(device, {1, 2, 2, 2}, DType::f32),
                 w = Tensor::zeros(device, {3, 2, 1, 1}, DType::f32),
                 bias = Tensor::from(device, {3}, DType::f32, added);
    Tensor out(device, {1, 3, 2, 2}, DType::f32);
    const FusedConv2d op{.x = x, .w = w, .bias = bias, .out = out};
    if (row.refuses(device, op)) return;
    run_with(row, op);
    const std::vector<double> values = out.values();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
      EXPECT_EQ(values[4 + i], HUGE_VAL) << i;
      EXPECT_EQ(values[8 + i], 0) << i;
    }
  });
}

TEST(FusedConvolution, WrongOperandsAreErrors) {
  const std::shared_ptr<Device> cpu = open_device("cpu");
  const Tensor x = Tensor::zeros(*cpu, {1, 4, 3, 3}, DType::f32), w = Tensor::zeros(*cpu, {6, 4, 1, 1}, DType::f32),
               of_image = Tensor::zeros(*cpu, {4}, DType::f32), none;
  Tensor out(*cpu, {1, 6, 3, 3}, DType::f32), smaller(*cpu, {1, 6, 2, 3}, DType::f32);
  const auto error_of = [](const FusedConv2d& op) -> std::string {
    try {
      op.check();
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(error_of({.x = x, .w = w, .bias = none, .out = out}), "accepted");
  EXPECT_NE(error_of({.x = x, .w = w, .bias = of_image, .out = out}).find("bias must be of shape [6]"),
            std::string::npos);
  EXPECT_NE(error_of({.x = x, .w = w, .bias = none, .out = smaller}), "accepted");
}

TEST(FusedConvolution, ItsWorkIsThatOfTheConvolution) {
  const std::shared_ptr<Device> cpu = open_device("cpu");
  const Tensor x = Tensor::zeros(*cpu, {2, 4, 3, 3}, DType::f16), w = Tensor::zeros(*cpu, {6, 2, 3, 3}, DType::f16),
               bias = Tensor::zeros(*cpu, {6}, DType::f16);
  Tensor out(*cpu, {2, 6, 1, 1}, DType::f16);
  const ProductWork work = product_work(FusedConv2d{.x = x, .w = w, .bias = bias, .out = out, .groups = 2});
  EXPECT_EQ(work.type, "f16");
  EXPECT_EQ(work.flops, 2.0 * 2 * 6 * 2 * 3 * 3);
}

}  // namespace
}  // namespace halfmark::kernels
