// Formulas that CPU and GPU kernels share, written once so that the host can test them. T is the wide type (float or
// double) of the arithmetic; reading narrow operands and rounding results is the caller's. Knows no CUDA header.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define HM_HOST_DEVICE __host__ __device__
#else
#define HM_HOST_DEVICE
#endif

namespace halfmark::formulas {

template <class T>
HM_HOST_DEVICE constexpr bool is_nan(T x) {
  return x != x;
}

template <class T>
HM_HOST_DEVICE constexpr bool is_finite(T x) {
  return x - x == 0;  // infinity minus itself is NaN
}

// A NaN passes: a network that has gone wrong must not be healed by its activation. -0 becomes +0.
template <class T>
HM_HOST_DEVICE constexpr T relu(T x) {
  return x <= 0 ? T(0) : x;
}

template <class T>
HM_HOST_DEVICE constexpr T relu_backward(T y, T dy) {
  return y > 0 ? dy : T(0);
}

// Does `candidate` replace `best` as a window's maximum? The first of equals stays; the first NaN wins and stays.
template <class T>
HM_HOST_DEVICE constexpr bool pool_takes(T candidate, T best) {
  return candidate > best || (is_nan(candidate) && !is_nan(best));
}

// The test is on the scaled gradient: an overflow must be seen even where the product would be finite.
template <class T>
HM_HOST_DEVICE constexpr T unscale(T gradient, T inverse_scale, bool& found_inf) {
  if (!is_finite(gradient)) found_inf = true;
  return gradient * inverse_scale;
}

template <class T>
struct SgdState {
  T parameter, velocity;
};

// v <- momentum v + (g + weight_decay p); p <- p - rate v, with the v that was not yet rounded to its storage.
template <class T>
HM_HOST_DEVICE constexpr SgdState<T> sgd_step(T parameter, T gradient, T velocity, T rate, T momentum, T weight_decay) {
  const T direction = weight_decay == 0 ? gradient : gradient + weight_decay * parameter;
  // No momentum must not read the velocity: 0 * infinity is NaN.
  const T next = momentum == 0 ? direction : momentum * velocity + direction;
  return {parameter - rate * next, next};
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

template <class T>
HM_HOST_DEVICE constexpr T moving_average(T running, T batch, T momentum) {
  return (T(1) - momentum) * running + momentum * batch;
}

// With m values per channel: scale inverse (dy - dshift / m - xhat dscale / m).
template <class T>
HM_HOST_DEVICE constexpr T batch_norm_backward(T x, T dy, T mean, T inverse, T scale, T dscale, T dshift, T m) {
  const T xhat = (x - mean) * inverse;
  return scale * inverse * (dy - dshift / m - xhat * (dscale / m));
}

// Gradient of the mean cross-entropy with respect to one logit; `factor` is dloss / n.
template <class T>
HM_HOST_DEVICE constexpr T softmax_backward(T probability, bool is_label, T factor) {
  return (probability - (is_label ? T(1) : T(0))) * factor;
}

}  // namespace halfmark::formulas
