// One piece of work for each operation: operands of a dtype on a device, small for rows that are slow by nature.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::bench::micro {

struct Request {
  Device& device;
  DType dtype;
  bool large;   // for rows of real speed
  bool filled;  // with random numbers; not needed to ask whether a row takes the work
};

// A tensor of the request's dtype with random numbers around 0.
inline Tensor operand(const Request& r, const Shape& shape, uint64_t seed, double scale = 1) {
  if (!r.filled) return Tensor(r.device, shape, r.dtype);
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * key.normal(i);
  return Tensor::from(r.device, shape, r.dtype, values);
}

inline Tensor constant(const Request& r, const Shape& shape, DType dtype, double value) {
  Tensor tensor(r.device, shape, dtype);
  tensor.fill(value);
  return tensor;
}

// f(operation, size, flops) with the operation `Op`; flops is 0 where nobody counts them.
template <class Op, class F>
void with_operation(const Request& r, F f) {
  const Format wide = r.dtype == DType::f64 ? kFp64 : kFp32;
  const Math math{.multiply = format_of(r.dtype), .accumulate = wide, .partial = wide};
  const DType statistics = r.dtype == DType::f64 ? DType::f64 : DType::f32;
  if constexpr (std::is_same_v<Op, Matmul>) {
    const int64_t n = r.large ? 256 : 24;
    const Tensor a = operand(r, {n, n}, 1), b = operand(r, {n, n}, 2);
    Tensor out(r.device, {n, n}, r.dtype);
    f(Op{.a = a, .b = b, .out = out, .math = math}, std::to_string(n), 2.0 * static_cast<double>(n * n * n));
    return;
  }
  const int64_t n = r.large ? 8 : 1, c = r.large ? 32 : 4, side = r.large ? 28 : 6;
  const Shape image{n, c, side, side}, half{n, c, side / 2, side / 2}, filter{c, c, 3, 3}, vector{c};
  const std::string size =
      std::to_string(n).append("x").append(std::to_string(c)).append("x").append(std::to_string(side));
  const Window same{.pad_h = 1, .pad_w = 1}, pooling{.stride_h = 2, .stride_w = 2};
  const double flops = 2.0 * 9 * static_cast<double>(image.elements() * c);
  if constexpr (std::is_same_v<Op, Conv2d>) {
    const Tensor x = operand(r, image, 1), w = operand(r, filter, 2, 0.1);
    Tensor out(r.device, image, r.dtype);
    f(Op{.x = x, .w = w, .out = out, .window = same, .math = math}, size, flops);
  } else if constexpr (std::is_same_v<Op, Conv2dBackwardData>) {
    const Tensor dy = operand(r, image, 1), w = operand(r, filter, 2, 0.1);
    Tensor dx(r.device, image, r.dtype);
    f(Op{.dy = dy, .w = w, .dx = dx, .window = same, .math = math}, size, flops);
  } else if constexpr (std::is_same_v<Op, Conv2dBackwardWeights>) {
    const Tensor x = operand(r, image, 1), dy = operand(r, image, 2);
    Tensor dw(r.device, filter, r.dtype);
    f(Op{.x = x, .dy = dy, .dw = dw, .window = same, .math = math}, size, flops);
  } else if constexpr (std::is_same_v<Op, AddBias>) {
    const Tensor x = operand(r, image, 1), bias = operand(r, vector, 2);
    Tensor out(r.device, image, r.dtype);
    f(Op{x, bias, out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, BiasGradient>) {
    const Tensor dy = operand(r, image, 1);
    Tensor dbias(r.device, vector, r.dtype);
    f(Op{dy, dbias}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, BatchNorm>) {
    const Tensor x = operand(r, image, 1), scale = constant(r, vector, statistics, 1),
                 shift = constant(r, vector, statistics, 0);
    Tensor out(r.device, image, r.dtype), mean(r.device, vector, statistics), variance(r.device, vector, statistics);
    Tensor running_mean = constant(r, vector, statistics, 0), running_variance = constant(r, vector, statistics, 1);
    f(Op{x, scale, shift, out, mean, variance, running_mean, running_variance}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, BatchNormInference>) {
    const Tensor x = operand(r, image, 1), scale = constant(r, vector, statistics, 1),
                 shift = constant(r, vector, statistics, 0);
    const Tensor mean = constant(r, vector, statistics, 0), variance = constant(r, vector, statistics, 1);
    Tensor out(r.device, image, r.dtype);
    f(Op{x, scale, shift, mean, variance, out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, BatchNormBackward>) {
    const Tensor x = operand(r, image, 1), dy = operand(r, image, 2), scale = constant(r, vector, statistics, 1);
    const Tensor mean = constant(r, vector, statistics, 0), variance = constant(r, vector, statistics, 1);
    Tensor dx(r.device, image, r.dtype), dscale(r.device, vector, statistics), dshift(r.device, vector, statistics);
    f(Op{x, dy, scale, mean, variance, dx, dscale, dshift}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, Relu>) {
    const Tensor x = operand(r, image, 1);
    Tensor out(r.device, image, r.dtype);
    f(Op{x, out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, ReluBackward>) {
    const Tensor y = operand(r, image, 1), dy = operand(r, image, 2);
    Tensor dx(r.device, image, r.dtype);
    f(Op{y, dy, dx}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, MaxPool2d>) {
    const Tensor x = operand(r, image, 1);
    Tensor out(r.device, half, r.dtype), indices(r.device, half, DType::u8);
    f(Op{.x = x, .out = out, .indices = indices, .window = pooling}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, MaxPool2dBackward>) {
    const Tensor dy = operand(r, half, 1), indices = constant(r, half, DType::u8, 0);
    Tensor dx(r.device, image, r.dtype);
    f(Op{.dy = dy, .indices = indices, .dx = dx, .window = pooling}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, AvgPool2d>) {
    const Tensor x = operand(r, image, 1);
    Tensor out(r.device, half, r.dtype);
    f(Op{.x = x, .out = out, .window = pooling}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, AvgPool2dBackward>) {
    const Tensor dy = operand(r, half, 1);
    Tensor dx(r.device, image, r.dtype);
    f(Op{.dy = dy, .dx = dx, .window = pooling}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, Add>) {
    const Tensor a = operand(r, image, 1), b = operand(r, image, 2);
    Tensor out(r.device, image, r.dtype);
    f(Op{a, b, out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, SoftmaxCrossEntropy>) {
    const Shape logits{n * 16, 100};
    const Tensor x = operand(r, logits, 1), labels = constant(r, {n * 16}, DType::i32, 3);
    Tensor loss(r.device, {1}, statistics), probabilities(r.device, logits, r.dtype);
    f(Op{x, labels, loss, probabilities}, std::to_string(n * 16) + "x100", 0.0);
  } else if constexpr (std::is_same_v<Op, SoftmaxCrossEntropyBackward>) {
    const Shape logits{n * 16, 100};
    const Tensor probabilities = constant(r, logits, r.dtype, 0.01), labels = constant(r, {n * 16}, DType::i32, 3);
    Tensor dlogits(r.device, logits, r.dtype);
    f(Op{probabilities, labels, dlogits}, std::to_string(n * 16) + "x100", 0.0);
  } else if constexpr (std::is_same_v<Op, DotProducts>) {
    const Shape operands{n * 16, 64};
    const Tensor a = operand(r, operands, 1), b = operand(r, operands, 2), none;
    const DType sum = r.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor addend = constant(r, {n * 16}, sum, 1);
    Tensor out(r.device, {n * 16}, sum);
    f(Op{.a = a, .b = b, .scale_a = none, .scale_b = none, .c = addend, .out = out}, std::to_string(n * 16) + "x64",
      2.0 * static_cast<double>(operands.elements()));
  } else if constexpr (std::is_same_v<Op, ScaledMatmul>) {
    // The request's dtype is that of the result; the operands are NVFP4.
    const int64_t extent = r.large ? 256 : 32;
    const std::vector<float> ones(static_cast<size_t>(extent * extent), 1.0f);
    const BlockFormat& format = block_format_named("nvfp4");
    const Scaled a = to_scaled(r.device, format, ones, extent, extent),
                 b = to_scaled(r.device, format, ones, extent, extent);
    Tensor out(r.device, {extent, extent}, r.dtype);
    f(Op{a, b, out}, std::to_string(extent), 2.0 * static_cast<double>(extent * extent * extent));
  } else if constexpr (std::is_same_v<Op, Cast>) {  // to the type it meets in training: fp32 and back
    const Tensor x = operand(r, image, 1);
    Tensor out(r.device, image, r.dtype == DType::f32 ? DType::f16 : DType::f32);
    f(Op{.x = x, .out = out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, Reorder>) {
    const Tensor x = operand(r, image, 1);
    Tensor out(r.device, image, r.dtype, Layout::nhwc);
    f(Op{x, out}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, Unscale>) {
    Tensor gradient = operand(r, image, 1), found = constant(r, {1}, DType::f32, 0);
    f(Op{.gradient = gradient, .found_inf = found}, size, 0.0);
  } else if constexpr (std::is_same_v<Op, SgdStep>) {
    Tensor parameter = operand(r, image, 1), velocity = operand(r, image, 2), low;
    const Tensor gradient = operand(r, image, 3);
    f(Op{.parameter = parameter, .gradient = gradient, .velocity = velocity, .low = low, .rate = 1e-4, .momentum = 0.9},
      size, 0.0);
  } else {
    static_assert(std::is_same_v<Op, Matmul>, "a new operation needs a line here");
  }
}

}  // namespace halfmark::bench::micro
