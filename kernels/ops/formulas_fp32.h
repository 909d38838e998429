// Functions of formulas.h in fp32 for GPUs: to keep up with memory, a 16-bit operation of one operand may take about 34
// instructions an element. Written with the GPU's approximate instructions; their largest errors by the PTX ISA 9.1, in ulp
// from the correctly rounded result: ex2.approx 2, rcp.approx 1; lg2.approx 2^-22, absolute from 0.5 to 2, else relative.
// std::exp is CUDA's expf: 2 ulp (CUDA Programming Guide 13.1, table 17).
// On the host they are exact, so that formulas_fp32_test.cpp measures what the formulas themselves lose.
// Polynomials and quotients of polynomials were fitted with the least maximum of the relative error (Lawson's iteration of
// least squares on 400 or more points, in fp64 from 40 digits of mpmath 1.4), and their coefficients rounded to fp32.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HM_HOST_DEVICE __host__ __device__
#else
#define HM_HOST_DEVICE
#endif

namespace halfmark::kernels::formulas {

// 2^x; 0 where that is subnormal.
HM_HOST_DEVICE inline float near_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const auto y = static_cast<float>(std::exp2(static_cast<double>(x)));
  return y < 0x1p-126F ? 0.0F : y;
#endif
}

// 1 / x of normal numbers.
HM_HOST_DEVICE inline float near_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}

HM_HOST_DEVICE inline float near_log2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return static_cast<float>(std::log2(static_cast<double>(x)));
#endif
}

// 1 / (1 + exp(-x)) and 1 / (1 + exp(x)). The larger one is 1 less the smaller: exactly 1 for large numbers, though a GPU's
// reciprocal of 1 may be 1 ulp off.
struct Shares {
  float high, low;
};
HM_HOST_DEVICE inline Shares shares_fp32(float x) {
  const float e = std::exp(-std::fabs(x)), reciprocal = near_reciprocal(1.0F + e);
  const float larger = std::fma(-e, reciprocal, 1.0F), smaller = e * reciprocal;
  return x < 0 ? Shares{smaller, larger} : Shares{larger, smaller};
}
HM_HOST_DEVICE inline float sigmoid_fp32(float x) {
  const Shares both = shares_fp32(x);
  return both.high;
}

// The share of a normal distribution beyond |x| is factor * power * scale, where power * scale is exp(-x^2 / 2), 0 beyond
// about |x| = 14.4. A NaN gives the values of 20; callers multiply by x.
struct NormalTail {
  float power, scale, factor;
};
HM_HOST_DEVICE inline NormalTail normal_tail_fp32(float x) {
  constexpr float kHalf = -0.72134752F;            // -log2(e) / 2
  constexpr float kToInteger = 12582912.0F + 127;  // 1.5 2^23: rounds a sum to a whole number; 127 is the exponent of 1
  const float z = std::fmin(std::fabs(x), 20.0F);
  const float square = z * z, rest = std::fma(z, z, -square);  // z^2 without error
  // 2^n with the whole number n, at least -126 so that the scale is normal; the power is then that of a fraction.
  const float sum = std::fmax(std::fma(square, kHalf, kToInteger), kToInteger - 126), n = sum - kToInteger;
  const float power = near_exp2(std::fma(rest, kHalf, std::fma(square, kHalf, -n)));
  uint32_t bits = 0;
  std::memcpy(&bits, &sum, sizeof bits);
  bits <<= 23;
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  // erfc(z / sqrt 2) / 2 / 2^(kHalf z^2) for z to 14.5, beyond which the product is 0 in fp32: relative error below
  // 0.8 2^-24. It holds the error of kHalf.
  float p = std::fma(0.0043805963F, z, 0.04246478F);
  p = std::fma(p, z, 0.18876785F), p = std::fma(p, z, 0.44596246F), p = std::fma(p, z, 0.5F);
  float q = std::fma(0.010980567F, z, 0.10644546F);
  q = std::fma(q, z, 0.48406264F), q = std::fma(q, z, 1.2258028F), q = std::fma(q, z, 1.68981F);
  q = std::fma(q, z, 1.0F);
  return {power, scale, p * near_reciprocal(q)};
}

HM_HOST_DEVICE inline float gelu_fp32(float x) {
  const NormalTail tail = normal_tail_fp32(x);
  const float beyond = tail.factor * tail.power * tail.scale;
  return x * (x < 0 ? beyond : 1.0F - beyond);
}

HM_HOST_DEVICE inline float gelu_backward_fp32(float x, float dy) {
  constexpr float kHeight = 0.39894228F;  // 1 / sqrt(2 pi)
  const NormalTail tail = normal_tail_fp32(x);
  const float terms = std::fma(kHeight, x, x < 0 ? tail.factor : -tail.factor) * tail.power;
  return dy * std::fma(terms, tail.scale, x < 0 ? 0.0F : 1.0F);
}

// 2 sqrt(2 / pi) (x + 0.044715 x^3)
HM_HOST_DEVICE inline float gelu_tanh_argument_fp32(float x) {
  return x * std::fma(0.07135481628F, x * x, 1.5957691216F);
}

// -log sigmoid(x) = log(1 + exp(-|x|)) + max(-x, 0)
HM_HOST_DEVICE inline float minus_log_sigmoid_fp32(float x) {
  const float e = std::exp(-std::fabs(x));
  // log(1 + e) / e for e from 0 to 1: relative error below 1.1 2^-24.
  float p = std::fma(0.0052326415F, e, -0.02950504F);
  p = std::fma(p, e, 0.07822565F), p = std::fma(p, e, -0.13663222F), p = std::fma(p, e, 0.19105996F);
  p = std::fma(p, e, -0.24842979F), p = std::fma(p, e, 0.33319098F), p = std::fma(p, e, -0.49999493F);
  p = std::fma(p, e, 0.99999994F);
  return std::fma(p, e, std::fmax(-x, 0.0F));
}

// -y log x - (1 - y) log(1 - x), with logarithms of at least -100; NaN for x outside of [0, 1].
HM_HOST_DEVICE inline float cross_entropy_fp32(float x, float y) {
  // 1 - x is exact from 1/2 on, where it is the smaller one.
  const float rest = 1.0F - x, m = std::fmin(x, rest);
  // -log(1 - m) / m for m from 0 to 1/2: relative error below 0.8 2^-24.
  float p = std::fma(1.4411272F, m, -1.6958481F);
  p = std::fma(p, m, 1.2576972F), p = std::fma(p, m, -0.20354973F), p = std::fma(p, m, 0.26961508F);
  p = std::fma(p, m, 0.24280481F), p = std::fma(p, m, 0.33370063F), p = std::fma(p, m, 0.49999285F);
  p = std::fma(p, m, 1.0F) * m;
  const float logarithm = near_log2(m) * 0.69314718F, of_smaller = logarithm < -100.0F ? -100.0F : logarithm;
  const bool is_low = x < 0.5F;
  const float wrong = 1.0F - y;
  return std::fma(is_low ? wrong : y, p, -(is_low ? y : wrong) * of_smaller);
}

}  // namespace halfmark::kernels::formulas
