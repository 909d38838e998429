// The mathematics of one element, written once: the reference rows, the fast CPU rows and the CUDA kernels call these
// functions. T is the arithmetic (float or double); the caller reads narrow operands and rounds results. On GPUs, some
// functions of float have a form of their own (formulas_fp32.h). Includes no CUDA header, so that the host can test it.
//
// Where rows of two devices evaluate one formula in different orders, each order has its own function: their roundings
// differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/formulas_fp32.h"

namespace halfmark::kernels::formulas {

template <class T>
HM_HOST_DEVICE constexpr bool is_nan(T x) {
  return x != x;  // NOLINT(misc-redundant-expression): the test for NaN
}

template <class T>
HM_HOST_DEVICE constexpr bool is_finite(T x) {
  return x - x == 0;  // NOLINT(misc-redundant-expression): infinity minus itself is NaN
}

// NaN must propagate; max(x, 0) would hide it. -0 becomes +0.
template <class T>
HM_HOST_DEVICE constexpr T relu(T x) {
  return x <= 0 ? T(0) : x;
}

// y is the output or the input of relu. Where it is NaN the gradient passes: PyTorch's threshold_backward
// (aten/src/ATen/native/cuda/ActivationThresholdKernel.cu) is x <= threshold ? 0 : dy.
template <class T>
HM_HOST_DEVICE constexpr T relu_backward(T y, T dy) {
  return y <= 0 ? T(0) : dy;
}

// The slope for negative x is that of torch.nn.LeakyReLU by default. A NaN passes.
template <class T>
HM_HOST_DEVICE constexpr T leaky_relu(T x) {
  return x <= 0 ? T(0.01) * x : x;
}

// y is the output or the input of leaky_relu, which have one sign.
template <class T>
HM_HOST_DEVICE constexpr T leaky_relu_backward(T y, T dy) {
  return y <= 0 ? T(0.01) * dy : dy;
}

// relu on the codes of fp16 and bf16, without branches so that compilers vectorise it. `infinity` is the code of
// infinity: larger positive codes are NaNs.
HM_HOST_DEVICE constexpr int16_t relu_code(int16_t x, int16_t infinity) {
  const auto negative = static_cast<int16_t>((x < 0) & (static_cast<int16_t>(x & 0x7fff) <= infinity));
  return static_cast<int16_t>(x & (negative - 1));
}

HM_HOST_DEVICE constexpr int16_t relu_backward_code(int16_t y, int16_t dy, int16_t infinity) {
  const auto passes = static_cast<int16_t>((y > 0) | (static_cast<int16_t>(y & 0x7fff) > infinity));
  return static_cast<int16_t>(dy & -passes);
}

// 1 / (1 + exp(-x)), without overflow on either side.
template <class T>
HM_HOST_DEVICE T sigmoid(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) return sigmoid_fp32(x);
#endif
  const T e = std::exp(x < 0 ? x : -x);  // at most 1
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

// y is the output of sigmoid.
template <class T>
HM_HOST_DEVICE constexpr T sigmoid_backward(T y, T dy) {
  return dy * (y * (T(1) - y));
}

// y is the output of tanh.
template <class T>
HM_HOST_DEVICE constexpr T tanh_backward(T y, T dy) {
  return dy * ((T(1) - y) * (T(1) + y));
}

// y is the output of exp.
template <class T>
HM_HOST_DEVICE constexpr T exp_backward(T y, T dy) {
  return dy * y;
}

template <class T>
HM_HOST_DEVICE constexpr T square(T x) {
  return x * x;
}

template <class T>
HM_HOST_DEVICE constexpr T square_backward(T x, T dy) {
  return dy * (T(2) * x);
}

template <class T>
HM_HOST_DEVICE T silu(T x) {
  return x * sigmoid(x);
}

template <class T>
HM_HOST_DEVICE T silu_backward(T x, T dy) {
  const T s = sigmoid(x);
  return dy * (s * (T(1) + x * (T(1) - s)));
}

// Half of erfc(-x / sqrt(2)): the share of a normal distribution below x. erf would cancel for negative x; the rounding
// of x / sqrt(2), which erfc amplifies x^2 times, is corrected to first order.
template <class T>
HM_HOST_DEVICE T normal_share(T x) {
  // 1 / sqrt(2), as the sum of two doubles and of two numbers of type T
  constexpr double kExact = 0.70710678118654752440, kRest = -4.8336466567264567e-17;
  constexpr T kHigh = T(kExact), kLow = T(kExact - static_cast<double>(kHigh) + kRest);
  const T a = -x * kHigh;
  if (!is_finite(a) || std::fabs(a) > T(30)) return x > 0 ? T(1) : (x < 0 ? T(0) : x);
  const T rest = std::fma(-x, kHigh, -a) - x * kLow;  // what a lacks
  constexpr T kSlope = T(1.12837916709551257390);     // 2 / sqrt(pi)
  return T(0.5) * (std::erfc(a) - kSlope * std::exp(-a * a) * rest);
}

template <class T>
HM_HOST_DEVICE T gelu(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) return gelu_fp32(x);
#endif
  return x * normal_share(x);
}

template <class T>
HM_HOST_DEVICE T gelu_backward(T x, T dy) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) return gelu_backward_fp32(x, dy);
#endif
  constexpr T kHeight = T(0.39894228040143267794);  // 1 / sqrt(2 pi)
  const T density = kHeight * std::exp(T(-0.5) * x * x);
  return dy * (normal_share(x) + x * density);
}

// x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 u): 1 + tanh cancels for negative x.
template <class T>
HM_HOST_DEVICE T gelu_tanh_argument(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) return gelu_tanh_argument_fp32(x);
#endif
  constexpr T kTwice = T(1.59576912160573071176);  // 2 sqrt(2 / pi)
  return kTwice * (x + T(0.044715) * x * x * x);
}

template <class T>
HM_HOST_DEVICE T gelu_tanh(T x) {
  return x * sigmoid(gelu_tanh_argument(x));
}

template <class T>
HM_HOST_DEVICE T gelu_tanh_backward(T x, T dy) {
  constexpr T kTwice = T(1.59576912160573071176);
  const T s = sigmoid(gelu_tanh_argument(x)), slope = s * (T(1) - s);
  // Where the slope is 0, the rest may be infinite.
  const T more = slope == 0 ? T(0) : x * slope * (kTwice * (T(1) + T(3 * 0.044715) * x * x));
  return dy * (s + more);
}

// Does `candidate` replace `best` as a window's maximum? The first of equal values stays; the last NaN wins, as in
// PyTorch (aten/src/ATen/native/cuda/DilatedMaxPool2d.cu: (val > maxval) || isnan(val)).
template <class T>
HM_HOST_DEVICE constexpr bool pool_takes(T candidate, T best) {
  return candidate > best || is_nan(candidate);
}

// Tests the scaled gradient: an overflow must be detected even if the unscaled gradient would be finite.
template <class T>
HM_HOST_DEVICE constexpr bool overflowed(T scaled_gradient) {
  return !is_finite(scaled_gradient);
}

template <class T>
HM_HOST_DEVICE constexpr T unscale(T scaled_gradient, T inverse_scale) {
  return scaled_gradient * inverse_scale;
}

// 1 / sqrt(variance + epsilon)
template <class T>
HM_HOST_DEVICE T batch_norm_inverse(T variance, T epsilon) {
  return T(1) / std::sqrt(variance + epsilon);
}

template <class T>
HM_HOST_DEVICE constexpr T batch_norm(T x, T mean, T inverse, T scale, T shift) {
  return scale * ((x - mean) * inverse) + shift;
}

// From left to right, in the order of the definition, as the reference rows do.
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_in_order(T x, T mean, T inverse, T scale, T shift) {
  return scale * (x - mean) * inverse + shift;
}

// With factor = scale / sqrt(variance + epsilon), computed once per channel.
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_folded(T x, T mean, T factor, T shift) {
  return (x - mean) * factor + shift;
}

// `kept` = 1 - momentum, which the caller may have rounded from a wider type.
template <class T>
HM_HOST_DEVICE constexpr T moving_average(T running, T batch, T kept, T momentum) {
  return kept * running + momentum * batch;
}

template <class T>
HM_HOST_DEVICE constexpr T moving_average(T running, T batch, T momentum) {
  return moving_average(running, batch, T(1) - momentum, momentum);
}

// With m values per channel: scale inverse (dy - dshift / m - xhat dscale / m).
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_backward(T x, T dy, T mean, T inverse, T scale, T dscale, T dshift, T m) {
  const T xhat = (x - mean) * inverse;
  return scale * inverse * (dy - dshift / m - xhat * (dscale / m));
}

// From left to right, as the reference rows do.
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_backward_in_order(T x, T dy, T mean, T inverse, T scale, T dscale, T dshift,
                                                        T m) {
  return scale * inverse * (dy - dshift / m - (x - mean) * inverse * dscale / m);
}

// With a = scale inverse, b = dshift / m and d = inverse dscale / m, computed once per channel.
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_backward_folded(T x, T dy, T mean, T a, T b, T d) {
  return a * (dy - b - (x - mean) * d);
}

// log softmax of a logit, given the largest logit of its row and log sum exp(z - largest) over the row
template <class T>
HM_HOST_DEVICE constexpr T log_softmax(T logit, T largest, T log_sum) {
  return (logit - largest) - log_sum;
}

// Gradient of the mean cross-entropy with respect to one logit, from its log softmax; `factor` is dloss / n. The
// difference is formed in T, which is wider than the storage: with logits 10 apart the label's probability is
// 1 - 4.5e-5, in fp16 exactly 1.
template <class T>
HM_HOST_DEVICE T softmax_backward(T log_probability, bool is_label, T factor) {
  return (std::exp(log_probability) - (is_label ? T(1) : T(0))) * factor;
}

}  // namespace halfmark::kernels::formulas
