// Our conversions against the host conversions of NVIDIA's headers: plain C++ and an independent implementation.
#include <gtest/gtest.h>

#include <ostream>
#include <utility>

#include "kernels/number/dtype.h"

#ifdef HALFMARK_HAS_CUDA_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#if __has_include(<cuda_fp4.h>)  // CUDA 12.8 and newer
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace halfmark::kernels {
namespace {

std::vector<double> probes() {
  std::vector<double> values;
  std::mt19937_64 random(9);
  for (int i = 0; i < 1'000'000; ++i) {
    // Values around every dtype's range; every second one is close to a tie with few bits.
    double x = std::bit_cast<double>((random() & 0x800FFFFFFFFFFFFFu) | (1023 - 40 + random() % 80) << 52);
    if (i % 2) x = std::bit_cast<double>((std::bit_cast<uint64_t>(x) >> 41 << 41) + random() % 3 - 1);
    values.push_back(x);
  }
  return values;
}

TEST(CudaHeaders, Fp16) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double value = decode(DType::f16, code);
    if (std::isnan(value)) continue;
    ASSERT_EQ(static_cast<double>(__half2float(__half(__half_raw{static_cast<unsigned short>(code)}))), value);
  }
  for (const double x : probes())
    ASSERT_EQ(encode(DType::f16, x), static_cast<__half_raw>(__double2half(x)).x) << std::hexfloat << x;
}

TEST(CudaHeaders, Bf16) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double value = decode(DType::bf16, code);
    if (std::isnan(value)) continue;
    ASSERT_EQ(
        static_cast<double>(__bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(code)}))),
        value);
  }
  for (const double x : probes())
    ASSERT_EQ(encode(DType::bf16, x), static_cast<__nv_bfloat16_raw>(__double2bfloat16(x)).x) << std::hexfloat << x;
}

TEST(CudaHeaders, Fp8) {
  for (const auto& [dtype, kind] : {std::pair{DType::e4m3, __NV_E4M3}, std::pair{DType::e5m2, __NV_E5M2}}) {
    for (uint32_t code = 0; code < 256; ++code) {
      const double value = decode(dtype, code);
      const __half_raw half = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), kind);
      const auto theirs = static_cast<double>(__half2float(__half(half)));
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(theirs)) << code;
      } else {
        ASSERT_EQ(theirs, value) << code;
      }
    }
    // __NV_NOSAT: overflow to infinity or NaN, as ours.
    for (const double x : probes())
      ASSERT_EQ(encode(dtype, x), __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind))
          << name_of(dtype) << " " << std::hexfloat << x;
    for (const double x : probes())
      ASSERT_EQ(encode(dtype, x, Rounding::near_even, nullptr, 0, Overflow::saturate),
                __nv_cvt_double_to_fp8(x, __NV_SATFINITE, kind))
          << name_of(dtype) << " " << std::hexfloat << x;
    for (const double x : {HUGE_VAL, -HUGE_VAL}) {
      ASSERT_EQ(encode(dtype, x), __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind));
      ASSERT_EQ(encode(dtype, x, Rounding::near_even, nullptr, 0, Overflow::saturate),
                __nv_cvt_double_to_fp8(x, __NV_SATFINITE, kind));
    }
  }
}

#if __has_include(<cuda_fp4.h>)
constexpr std::pair<Rounding, cudaRoundMode> kRoundings[] = {{Rounding::near_even, cudaRoundNearest},
                                                             {Rounding::toward_zero, cudaRoundZero}};

std::vector<double> with_specials(std::vector<double> values) {
  for (const double x : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), -std::nan("")}) values.push_back(x);
  return values;
}

TEST(CudaHeaders, Fp6) {
  for (const auto& [dtype, kind] : {std::pair{DType::e3m2, __NV_E3M2}, std::pair{DType::e2m3, __NV_E2M3}}) {
    for (uint32_t code = 0; code < 64; ++code) {
      const __half_raw half = __nv_cvt_fp6_to_halfraw(static_cast<__nv_fp6_storage_t>(code), kind);
      ASSERT_EQ(static_cast<double>(__half2float(__half(half))), decode(dtype, code)) << code;
    }
    for (const auto& [rounding, theirs] : kRoundings)
      for (const double x : with_specials(probes()))
        ASSERT_EQ(encode(dtype, x, rounding), __nv_cvt_double_to_fp6(x, kind, theirs))
            << name_of(dtype) << " " << std::hexfloat << x;
  }
}

TEST(CudaHeaders, Fp4AndItsPairsInAByte) {
  for (uint32_t code = 0; code < 16; ++code) {
    const __half_raw half = __nv_cvt_fp4_to_halfraw(static_cast<__nv_fp4_storage_t>(code), __NV_E2M1);
    ASSERT_EQ(static_cast<double>(__half2float(__half(half))), decode(DType::e2m1, code)) << code;
  }
  for (const auto& [rounding, theirs] : kRoundings) {
    const std::vector<double> values = with_specials(probes());
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      ASSERT_EQ(encode(DType::e2m1, values[i], rounding), __nv_cvt_double_to_fp4(values[i], __NV_E2M1, theirs));
      if (i % 16) continue;
      uint8_t pair = 0;
      store(DType::e2m1, &pair, 0, values[i], rounding), store(DType::e2m1, &pair, 1, values[i + 1], rounding);
      ASSERT_EQ(pair, __nv_cvt_double2_to_fp4x2(double2{values[i], values[i + 1]}, __NV_E2M1, theirs));
    }
  }
}

TEST(CudaHeaders, E8m0) {
  for (uint32_t code = 0; code < 256; ++code) {
    const __nv_bfloat16_raw wide = __nv_cvt_e8m0_to_bf16raw(static_cast<__nv_fp8_storage_t>(code));
    const auto theirs = static_cast<double>(__bfloat162float(__nv_bfloat16(wide)));
    ASSERT_EQ(std::isnan(theirs), std::isnan(decode(DType::e8m0, code)));
    if (code != 255) {
      ASSERT_EQ(theirs, decode(DType::e8m0, code));
    }
  }
  std::vector<double> values = with_specials(probes());
  for (int exponent = -160; exponent < 140; ++exponent)
    for (const double x : {1.0, 1.25, 1.5, 1.99}) values.push_back(std::ldexp(x, exponent));
  // NVIDIA rounds only towards zero or up. Without saturation, 2^128 and above is NaN even towards zero, where halfmark
  // follows IEEE 754 and gives the largest number. The comparison is therefore made below that.
  for (const double x : values) {
    const auto saturated = __nv_cvt_double_to_e8m0(x, __NV_SATFINITE, cudaRoundZero);
    ASSERT_EQ(encode(DType::e8m0, x, Rounding::toward_zero, nullptr, 0, Overflow::saturate), saturated)
        << std::hexfloat << x;
    if (!(std::fabs(x) >= 0x1p128)) {
      ASSERT_EQ(encode(DType::e8m0, x, Rounding::toward_zero), __nv_cvt_double_to_e8m0(x, __NV_NOSAT, cudaRoundZero));
    }
  }
  ASSERT_EQ(encode(DType::e8m0, HUGE_VAL), __nv_cvt_double_to_e8m0(HUGE_VAL, __NV_NOSAT, cudaRoundZero));
}
#endif

}  // namespace
}  // namespace halfmark::kernels
#else
TEST(CudaHeaders, Absent) { GTEST_SKIP() << "cuda_fp8.h was not found: no comparison with NVIDIA's host conversions"; }
#endif
