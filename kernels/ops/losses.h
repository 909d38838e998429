// The table of element-wise losses: the mean over all elements of f(x, y), of an output x and a target y. A row is a
// struct in the list below; operations, kernels of the CPU, tests and micro benchmarks are generated from it. Includes
// no CUDA header.
//
// A row has
//   name, backward_name   of its two operations, as in reports
//   about                 the function in words
//   a, b                  defaults of its two arguments
//   argument_a, argument_b  their names; empty: not used
//   value(x, y, a, b)     f in the arithmetic T (float or double)
//   slope(x, y, a, b)     its derivative with respect to x
// Formulas follow PyTorch's aten/src/ATen/native/Loss.cpp and aten/src/ATen/native/cpu/BinaryOpsKernel.cpp, and
// torchvision's ops/focal_loss.py, except where a comment says so.
#pragma once

#include <cmath>
#include <string_view>

#include "kernels/ops/activations.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels {

namespace formulas {

// log(1 + exp(-|x|)) + max(-x, 0) = -log sigmoid(x), without overflow on either side.
template <class T>
HM_HOST_DEVICE T minus_log_sigmoid(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) return minus_log_sigmoid_fp32(x);
#endif
  return std::log1p(std::exp(x < 0 ? x : -x)) + (x < 0 ? -x : T(0));
}

}  // namespace formulas

namespace losses {

struct Mse {
  static constexpr std::string_view name = "mse_loss", backward_name = "mse_loss_backward";
  static constexpr std::string_view about = "(x - y)^2", argument_a = "", argument_b = "";
  static constexpr double a = 0, b = 0;
  template <class T>
  HM_HOST_DEVICE static constexpr T value(T x, T y, T, T) {
    return (x - y) * (x - y);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T slope(T x, T y, T, T) {
    return T(2) * (x - y);
  }
};

// beta = 0: |x - y|, with the slope 0 at 0.
struct SmoothL1 {
  static constexpr std::string_view name = "smooth_l1_loss", backward_name = "smooth_l1_loss_backward";
  static constexpr std::string_view about = "d^2 / (2 beta) where d = |x - y| is below beta, else d - beta / 2";
  static constexpr std::string_view argument_a = "beta", argument_b = "";
  static constexpr double a = 1, b = 0;
  template <class T>
  HM_HOST_DEVICE static T value(T x, T y, T beta, T) {
    const T d = std::fabs(x - y);
    return d < beta ? T(0.5) * d * d / beta : d - T(0.5) * beta;
  }
  template <class T>
  HM_HOST_DEVICE static T slope(T x, T y, T beta, T) {
    const T d = x - y;
    if (std::fabs(d) < beta) return d / beta;
    return d > 0 ? T(1) : (d < 0 ? T(-1) : d);  // a NaN stays
  }
};

// Differs from PyTorch's slope (1 - y + w y) sigmoid(x) - w y where that cancels: for y = 1 it is 0 from x = 17 on in
// fp32; here it is -w sigmoid(-x).
struct BinaryCrossEntropyWithLogits {
  static constexpr std::string_view name = "binary_cross_entropy_with_logits",
                                    backward_name = "binary_cross_entropy_with_logits_backward";
  static constexpr std::string_view about = "-w y log sigmoid(x) - (1 - y) log(1 - sigmoid(x))";
  static constexpr std::string_view argument_a = "pos_weight", argument_b = "";
  static constexpr double a = 1, b = 0;
  template <class T>
  HM_HOST_DEVICE static T value(T x, T y, T weight, T) {
    return (T(1) - y) * x + (T(1) + (weight - T(1)) * y) * formulas::minus_log_sigmoid(x);
  }
  template <class T>
  HM_HOST_DEVICE static T slope(T x, T y, T weight, T) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == sizeof(float)) {
      const formulas::Shares share = formulas::shares_fp32(x);
      return (T(1) - y) * share.high - weight * y * share.low;
    }
#endif
    return (T(1) - y) * formulas::sigmoid(x) - weight * y * formulas::sigmoid(-x);
  }
};

// x is a probability; outside of [0, 1] the result is NaN, where PyTorch throws. The logarithms are at least -100.
struct BinaryCrossEntropy {
  static constexpr std::string_view name = "binary_cross_entropy", backward_name = "binary_cross_entropy_backward";
  static constexpr std::string_view about = "-y log x - (1 - y) log(1 - x), with logarithms of at least -100";
  static constexpr std::string_view argument_a = "", argument_b = "";
  static constexpr double a = 0, b = 0;
  template <class T>
  HM_HOST_DEVICE static T limited(T logarithm) {
    return logarithm < T(-100) ? T(-100) : logarithm;
  }
  template <class T>
  HM_HOST_DEVICE static T value(T x, T y, T, T) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == sizeof(float)) return formulas::cross_entropy_fp32(x, y);
#endif
    return (y - T(1)) * limited(std::log1p(-x)) - y * limited(std::log(x));
  }
  template <class T>
  HM_HOST_DEVICE static T slope(T x, T y, T, T) {
    const T spread = (T(1) - x) * x;
    constexpr T kLeast = T(1e-12);  // EPSILON of PyTorch's Loss.cpp
    return (x - y) / (spread < kLeast ? kLeast : spread);
  }
};

// 1 - p_t is formed from sigmoid(x) and sigmoid(-x), where torchvision subtracts p_t from 1. A negative alpha: no
// weight.
struct Focal {
  static constexpr std::string_view name = "sigmoid_focal_loss", backward_name = "sigmoid_focal_loss_backward";
  static constexpr std::string_view about = "alpha_t (1 - p_t)^gamma times the binary cross-entropy of the logit x";
  static constexpr std::string_view argument_a = "alpha", argument_b = "gamma";
  static constexpr double a = 0.25, b = 2;
  template <class T>
  HM_HOST_DEVICE static T weight(T y, T alpha) {
    return alpha < 0 ? T(1) : alpha * y + (T(1) - alpha) * (T(1) - y);
  }
  template <class T>
  HM_HOST_DEVICE static T missed(T x, T y) {  // 1 - p_t
    return y * formulas::sigmoid(-x) + (T(1) - y) * formulas::sigmoid(x);
  }
  template <class T>
  HM_HOST_DEVICE static T cross_entropy(T x, T y) {
    return BinaryCrossEntropyWithLogits::value(x, y, T(1), T(0));
  }
  template <class T>
  HM_HOST_DEVICE static T value(T x, T y, T alpha, T gamma) {
    return weight(y, alpha) * std::pow(missed(x, y), gamma) * cross_entropy(x, y);
  }
  template <class T>
  HM_HOST_DEVICE static T slope(T x, T y, T alpha, T gamma) {
    const T high = formulas::sigmoid(x), low = formulas::sigmoid(-x), q = missed(x, y);
    const T outer = std::pow(q, gamma) * ((T(1) - y) * high - y * low);
    // The derivative of q is (1 - 2 y) high low; where q is 0, so is the product, but a power may be infinite.
    const T inner = q == 0 || gamma == 0
                        ? T(0)
                        : gamma * std::pow(q, gamma - T(1)) * ((T(1) - T(2) * y) * high * low) * cross_entropy(x, y);
    return weight(y, alpha) * (outer + inner);
  }
};

using All = activations::List<Mse, SmoothL1, BinaryCrossEntropyWithLogits, BinaryCrossEntropy, Focal>;

}  // namespace losses
}  // namespace halfmark::kernels
