// Our conversions against the host conversions of NVIDIA's headers, which are plain C++ and were not written by us.
#include <gtest/gtest.h>

#include "kernels/number/dtype.h"

#ifdef HALFMARK_HAS_CUDA_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace halfmark {
namespace {

std::vector<double> probes() {
  std::vector<double> values;
  std::mt19937_64 random(9);
  for (int i = 0; i < 1'000'000; ++i) {
    // Around every dtype's range; every second one close to a tie of few bits.
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
  }
}

}  // namespace
}  // namespace halfmark
#else
TEST(CudaHeaders, Absent) { GTEST_SKIP() << "cuda_fp8.h was not found: no comparison with NVIDIA's host conversions"; }
#endif
