// The arithmetic of one element in an optimizer's step, shared by the reference rows, the CPU's rows and the CUDA
// kernels. T is the arithmetic (float or double). `r` rounds an intermediate result: KeepWide, or to the dtype of the
// parameter where each operation stores its result, as in PyTorch (foreach=False, fused=False). Constants are computed in
// double and rounded once to T. Includes no CUDA header.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/formulas.h"

namespace halfmark::kernels {

enum class AdamKind : uint8_t {
  adam,   // torch.optim.Adam: the decay is added to the gradient
  adamw,  // torch.optim.AdamW: the decay multiplies the parameter first
  keras,  // keras.optimizers.Adam: epsilon is added before the bias of the second moment is corrected; decay as adamw
};

namespace formulas {

struct KeepWide {
  template <class T>
  HM_HOST_DEVICE constexpr T operator()(T x) const {
    return x;
  }
};

// The new parameter is kept - change. `kept` is the parameter after decay that multiplies it.
template <class T>
struct UpdateStep {
  T kept, change, first, second;
};

template <class T>
struct SgdConstants {
  T rate, momentum;
  T share;  // of the gradient in the velocity: 1 - dampening, and 1 in the first step
  T weight_decay;
  bool nesterov;
};

template <class T>
HM_HOST_DEVICE constexpr SgdConstants<T> sgd_constants(double rate, double momentum, double dampening,
                                                       double weight_decay, bool nesterov, bool first) {
  return {static_cast<T>(rate), static_cast<T>(momentum), static_cast<T>(first ? 1 : 1 - dampening),
          static_cast<T>(weight_decay), nesterov};
}

// torch.optim.SGD: v <- momentum v + share (g + weight_decay p); p <- p - rate v, with v before it is rounded to its
// storage; Nesterov: p <- p - rate (g + weight_decay p + momentum v). A term whose factor is zero is left out, because 0
// times infinity is NaN. A caller whose flags are constants gets a loop without branches.
template <class T, class Round = KeepWide>
HM_HOST_DEVICE constexpr UpdateStep<T> sgd_step(T parameter, T gradient, T velocity, const SgdConstants<T>& c,
                                                bool has_momentum, bool has_decay, Round r = {}) {
  const T direction = has_decay ? r(gradient + c.weight_decay * parameter) : gradient;
  const T next = has_momentum ? r(r(c.momentum * velocity) + c.share * direction) : direction;
  const T moved = c.nesterov ? r(direction + c.momentum * next) : next;
  return {parameter, c.rate * moved, next, T(0)};
}

template <class T>
struct AdamConstants {
  T rate;  // divided by the bias correction of the first moment
  T keep;  // 1 - rate weight_decay, for adamw and keras
  T weight_decay;
  T first_share, second_decay, second_share;  // 1 - beta1, beta2, 1 - beta2
  T root;                                     // square root of the bias correction of the second moment; keras: 1
  T epsilon;
};

// `step` counts from 1.
template <class T>
AdamConstants<T> adam_constants(AdamKind kind, double rate, double beta1, double beta2, double epsilon,
                                double weight_decay, int64_t step) {
  const auto power = static_cast<double>(step);
  const double first = 1 - std::pow(beta1, power), root = std::sqrt(1 - std::pow(beta2, power));
  const bool keras = kind == AdamKind::keras;
  return {static_cast<T>(keras ? rate * root / first : rate / first),
          static_cast<T>(1 - rate * weight_decay),
          static_cast<T>(weight_decay),
          static_cast<T>(1 - beta1),
          static_cast<T>(beta2),
          static_cast<T>(1 - beta2),
          static_cast<T>(keras ? 1 : root),
          static_cast<T>(epsilon)};
}

// a + share (b - a), from the nearer end, as in PyTorch (aten/src/ATen/native/Lerp.h).
template <class T>
HM_HOST_DEVICE constexpr T between(T a, T b, T share) {
  return share < T(0.5) ? a + share * (b - a) : b - (T(1) - share) * (b - a);
}

// m <- m + (1 - beta1) (g - m); v <- beta2 v + (1 - beta2) g^2; p <- p - rate m / (sqrt(v) / root + epsilon). Sources:
// PyTorch torch/optim/adam.py (_single_tensor_adam) and aten/src/ATen/native/cpu/FusedAdamKernel.cpp; Keras
// keras/src/optimizers/adam.py (update_step).
template <AdamKind kind, class T, class Round = KeepWide>
HM_HOST_DEVICE UpdateStep<T> adam_step(T parameter, T gradient, T first, T second, const AdamConstants<T>& c,
                                       bool has_decay, Round r = {}) {
  const bool coupled = kind == AdamKind::adam;
  const T kept = has_decay && !coupled ? r(parameter * c.keep) : parameter;
  const T direction = has_decay && coupled ? r(gradient + c.weight_decay * parameter) : gradient;
  const T mean = r(between(first, direction, c.first_share));
  const T square = kind == AdamKind::keras ? second + (direction * direction - second) * c.second_share
                                           : r(r(c.second_decay * second) + c.second_share * direction * direction);
  const T spread = r(r(r(std::sqrt(square)) / c.root) + c.epsilon);
  return {kept, (c.rate * mean) / spread, mean, square};
}

// min(1, limit / (norm + 1e-6)); NaN for a NaN. Source: PyTorch torch/nn/utils/clip_grad.py
// (_clip_grads_with_norm_); there a number divided by a tensor is the number times the reciprocal of the tensor.
template <class T>
HM_HOST_DEVICE constexpr T clip_factor(T norm, T limit) {
  const T factor = T(1) / (norm + T(1e-6)) * limit;
  return factor > T(1) ? T(1) : factor;
}

}  // namespace formulas
}  // namespace halfmark::kernels
