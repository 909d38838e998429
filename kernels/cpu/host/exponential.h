// exp and functions made of it, in fp32 without branches, so that the compiler uses vectors. The overloads for double are
// those of the standard library. Fused multiply-adds are asked for by name, so that every instruction set gives the same
// bits; without an instruction for them they are slow. exponential_test.cpp measures the errors that are stated here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {

namespace exponential_detail {

// Adding it rounds to a whole number n, whose two's complement is then in the low bits of the sum.
constexpr float kToInteger = 12582912.0F;  // 1.5 2^23
constexpr auto kToIntegerBits = static_cast<int32_t>(std::bit_cast<uint32_t>(kToInteger));

// x = n ln 2 + r with |r| <= ln 2 / 2; `bits` are those of kToInteger + n. ln 2 is taken in two parts, of which the first
// has 9 bits, so that n times it is exact (Cody and Waite, Software Manual, 1980).
struct Reduced {
  int32_t bits;
  float r;
};
inline Reduced reduced(float x) {
  const float sum = std::fma(x, 1.4426950408889634F, kToInteger), n = sum - kToInteger;
  return {std::bit_cast<int32_t>(sum), std::fma(n, 2.12194440e-4F, std::fma(n, -0.693359375F, x))};
}

// (exp(r) - 1 - r) / r^2: the Taylor polynomial of exp of degree 7, whose remainder is below 2^-27.
inline float tail(float r) {
  float p = std::fma(1.0F / 5040, r, 1.0F / 720);
  p = std::fma(p, r, 1.0F / 120), p = std::fma(p, r, 1.0F / 24), p = std::fma(p, r, 1.0F / 6);
  return std::fma(p, r, 0.5F);
}

// 2^n of such bits: the shift removes those of kToInteger. For NaN any number; the result is NaN by another factor.
inline float power_of_two(int32_t bits) {
  return std::bit_cast<float>((static_cast<uint32_t>(bits) << 23) + std::bit_cast<uint32_t>(1.0F));
}

}  // namespace exponential_detail

// exp(x + rest) for x that is not positive and a `rest` of at most a tenth: within 2 units in the last place (4 of a
// subnormal result); 1 for 0, 0 below -104, NaN for NaN.
inline float exp_of_nonpositive(float x, float rest = 0) {
  const auto [bits, r0] = exponential_detail::reduced(x < -104.0F ? -104.0F : x);
  const float r = r0 + rest;
  const float p = std::fma(exponential_detail::tail(r) * r, r, r) + 1.0F;
  // 2^n in two factors, because n may be below the exponents of normal numbers: the first is at least 2^-100, so only
  // the second rounds.
  constexpr int32_t kLeast = exponential_detail::kToIntegerBits - 100;
  const int32_t first = bits > kLeast ? bits : kLeast;
  return p * exponential_detail::power_of_two(first) * exponential_detail::power_of_two(bits - first);
}
inline double exp_of_nonpositive(double x) { return std::exp(x); }

// exp(x) - 1 for x that is not positive: within 3 units in the last place.
inline float expm1_of_nonpositive(float x) {
  const auto [bits, r] = exponential_detail::reduced(x < -30.0F ? -30.0F : x);
  const float scale = exponential_detail::power_of_two(bits);
  return std::fma(std::fma(exponential_detail::tail(r) * r, r, r), scale, scale - 1.0F);
}

inline float vector_sigmoid(float x) {
  const float e = exp_of_nonpositive(-std::fabs(x));
  return (x < 0 ? e : 1.0F) / (1.0F + e);
}
inline double vector_sigmoid(double x) { return formulas::sigmoid(x); }

inline float vector_tanh(float x) {
  const float e = expm1_of_nonpositive(-2.0F * std::fabs(x));
  return std::copysign(-e / (2.0F + e), x);
}
inline double vector_tanh(double x) { return std::tanh(x); }

// exp(-x^2 / 2), and a factor that gives the share of a normal distribution beyond |x| with it. For x beyond 16 and NaN
// as for 16.
struct NormalTail {
  float density, factor;
};
inline NormalTail normal_tail(float x) {
  const float size = std::fabs(x), z = size < 16.0F ? size : 16.0F;
  // z^2 in two parts: the square of the upper 12 bits of z is exact.
  const float high = std::bit_cast<float>(std::bit_cast<uint32_t>(z) & 0xFFFFF000U);
  const float density = exp_of_nonpositive(-0.5F * high * high, -0.5F * ((z - high) * (z + high)));
  // exp(x^2 / 2) erfc(x / sqrt 2) / 2 = t p(t), t = 1 / (1 + 0.35 x): fitted for [0, 16] with a relative error below
  // 0.6 2^-24.
  const float t = 1.0F / (1.0F + 0.35F * z);
  float p = std::fma(-0.0291651187F, t, 0.144066613F);
  p = std::fma(p, t, -0.255913874F), p = std::fma(p, t, 0.159406626F), p = std::fma(p, t, -0.0232732653F);
  p = std::fma(p, t, 0.105578785F), p = std::fma(p, t, 0.119814493F), p = std::fma(p, t, 0.139864474F);
  p = std::fma(p, t, 0.139621251F);
  return {density, p * t};
}

// The activations of kernels/ops/activations.h by name, as fp32 loops; each within the steps of its row.
template <class Row>
float vector_forward(float x) {
  if constexpr (Row::name == std::string_view{"sigmoid"}) {
    return vector_sigmoid(x);
  } else if constexpr (Row::name == std::string_view{"tanh"}) {
    return vector_tanh(x);
  } else if constexpr (Row::name == std::string_view{"silu"}) {
    return x * vector_sigmoid(x);
  } else if constexpr (Row::name == std::string_view{"gelu"}) {
    const NormalTail tail = normal_tail(x);
    return x < 0 ? x * tail.factor * tail.density : x * (1.0F - tail.factor * tail.density);
  } else if constexpr (Row::name == std::string_view{"gelu_tanh"}) {
    return x * vector_sigmoid(formulas::gelu_tanh_argument(x));
  } else {
    return Row::forward(x);
  }
}

template <class Row>
float vector_backward(float kept, float dy) {
  if constexpr (Row::name == std::string_view{"silu"}) {
    const float s = vector_sigmoid(kept);
    return dy * (s * (1.0F + kept * (1.0F - s)));
  } else if constexpr (Row::name == std::string_view{"gelu"}) {
    constexpr float kHeight = 0.39894228040143267794F;  // 1 / sqrt(2 pi)
    const NormalTail tail = normal_tail(kept);
    const float slope = kHeight * kept * tail.density, beyond = tail.factor * tail.density;
    return dy * ((kept < 0 ? beyond : 1.0F - beyond) + slope);
  } else if constexpr (Row::name == std::string_view{"gelu_tanh"}) {
    constexpr float kTwice = 1.59576912160573071176F;  // 2 sqrt(2 / pi)
    const float s = vector_sigmoid(formulas::gelu_tanh_argument(kept)), slope = s * (1.0F - s);
    const float more = slope == 0 ? 0.0F : kept * slope * (kTwice * (1.0F + 3 * 0.044715F * kept * kept));
    return dy * (s + more);
  } else {
    return Row::backward(kept, dy);
  }
}

// The sum of exp(z - largest) of `count` numbers of which none is larger; fp64 in order.
inline float sum_of_exponentials(const float* z, int64_t count, float largest) {
  return lanes_sum<float, kLanes<float>>(count, [&](int64_t j) { return exp_of_nonpositive(z[j] - largest); });
}
inline double sum_of_exponentials(const double* z, int64_t count, double largest) {
  return lanes_sum<double, 1>(count, [&](int64_t j) { return std::exp(z[j] - largest); });
}

}  // namespace halfmark::kernels::host
