// fp16 arithmetic against the processor's own FP16 instructions, including flags, and against the compiler's _Float16.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>

#include "kernels/number/arithmetic.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace halfmark::kernels {
namespace {

bool is_nan(uint64_t code) { return (code & 0x7FFF) > 0x7C00; }

// Any code, or one with a middle exponent and a short significand: ties, cancellation and exact results.
uint64_t draw(std::mt19937_64& random) {
  const uint64_t r = random();
  if (r & 1) return (r >> 8) & 0xFFFF;
  return ((r >> 8) & 0x8000) | (8 + (r >> 24) % 14) << 10 | (((r >> 32) & 0x3FF) & (0x3FF << ((r >> 48) % 11)));
}

#if defined(__x86_64__)

bool has_avx512_fp16() {
  // CPUID leaf 7: AVX512-FP16 is edx bit 23 (Intel SDM volume 2). The
  // check of "avx512f" includes that the system saves the registers.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((d >> 23) & 1);
}

// One instruction between writing and reading MXCSR: all exceptions
// masked, flags clear, the rounding mode in bits 13 and 14.
#define HM_FP16(instruction)                                                                           \
  __asm__ volatile("vldmxcsr %[control]\n\t" instruction "\n\tvstmxcsr %[after]\n\tvldmxcsr %[before]" \
                   : [x] "+x"(x), [after] "=m"(after)                                                  \
                   : [y] "x"(y), [z] "x"(z), [control] "m"(control), [before] "m"(before))

Result on_processor(ScalarOperation operation, uint64_t x_code, uint64_t y_code, uint64_t z_code, Rounding rounding) {
  __m128i x = _mm_cvtsi32_si128(static_cast<int>(x_code));
  const __m128i y = _mm_cvtsi32_si128(static_cast<int>(y_code)), z = _mm_cvtsi32_si128(static_cast<int>(z_code));
  const unsigned before = _mm_getcsr(), control = 0x1F80 | (rounding == Rounding::toward_zero ? 0x6000 : 0);
  unsigned after = 0;
  switch (operation) {
    case ScalarOperation::add:
      HM_FP16("vaddsh %[y], %[x], %[x]");
      break;
    case ScalarOperation::sub:
      HM_FP16("vsubsh %[y], %[x], %[x]");
      break;
    case ScalarOperation::mul:
      HM_FP16("vmulsh %[y], %[x], %[x]");
      break;
    case ScalarOperation::div:
      HM_FP16("vdivsh %[y], %[x], %[x]");
      break;
    case ScalarOperation::mul_add:
      HM_FP16("vfmadd213sh %[z], %[y], %[x]");
      break;
    case ScalarOperation::sqrt:
      HM_FP16("vsqrtsh %[x], %[x], %[x]");
      break;
  }
  // MXCSR: 0 invalid, 1 a subnormal operand (no flag of IEEE
  // 754), 2 divide by zero, 3 overflow, 4 underflow, 5 inexact.
  const unsigned flags = (after & 1 ? kInvalid : 0u) | (after & 4 ? kDivideByZero : 0u) | (after & 8 ? kOverflow : 0u) |
                         (after & 16 ? kUnderflow : 0u) | (after & 32 ? kInexact : 0u);
  const auto code = static_cast<uint64_t>(_mm_cvtsi128_si32(x)) & 0xFFFF;
  return {is_nan(code) ? 0x7E00 : code, flags};  // x86 propagates a payload, ours is the default NaN
}

// x86 raises no flag for infinity * 0 + a quiet NaN; RISC-V and halfmark do.
bool differs_by_definition(ScalarOperation operation, uint64_t x, uint64_t y, uint64_t z) {
  const auto infinite = [](uint64_t code) { return (code & 0x7FFF) == 0x7C00; };
  const auto zero = [](uint64_t code) { return (code & 0x7FFF) == 0; };
  return operation == ScalarOperation::mul_add && ((infinite(x) && zero(y)) || (zero(x) && infinite(y))) && is_nan(z);
}

void expect_processor(ScalarOperation operation, uint64_t x, uint64_t y, uint64_t z, Rounding rounding) {
  if (differs_by_definition(operation, x, y, z)) return;
  const Result ours = compute(operation, kFp16, x, y, z, rounding), theirs = on_processor(operation, x, y, z, rounding);
  ASSERT_EQ(ours, theirs) << operations()[static_cast<size_t>(operation)].name << " " << name_of(rounding) << std::hex
                          << " " << x << " " << y << " " << z << " is " << ours.code << "/" << ours.flags
                          << ", the processor says " << theirs.code << "/" << theirs.flags;
}

TEST(ArithmeticOfTheProcessor, IsOursWithItsFlags) {
  if (!has_avx512_fp16()) GTEST_SKIP() << "this processor has no AVX512-FP16";
  std::mt19937_64 random(1);
  for (const Rounding rounding : {Rounding::near_even, Rounding::toward_zero}) {
    for (uint64_t x = 0; x < 65536; ++x)
      ASSERT_NO_FATAL_FAILURE(expect_processor(ScalarOperation::sqrt, x, 0, 0, rounding));
    for (int i = 0; i < 300'000; ++i) {
      const uint64_t x = draw(random), y = draw(random);
      uint64_t z = draw(random);
      for (const ScalarOperation operation :
           {ScalarOperation::add, ScalarOperation::sub, ScalarOperation::mul, ScalarOperation::div})
        ASSERT_NO_FATAL_FAILURE(expect_processor(operation, x, y, 0, rounding));
      if (i % 2) z = ((compute(ScalarOperation::mul, kFp16, x, y, 0).code ^ 0x8000) + random() % 5 - 2) & 0xFFFF;
      ASSERT_NO_FATAL_FAILURE(expect_processor(ScalarOperation::mul_add, x, y, z, rounding));
    }
  }
}

#else

TEST(ArithmeticOfTheProcessor, IsOursWithItsFlags) { GTEST_SKIP() << "AVX512-FP16 exists only on x86-64"; }

#endif

TEST(ArithmeticOfTheCompiler, IsOurs) {
#if defined(__FLT16_MANT_DIG__) && defined(__SSE2__) && !defined(__clang__)
  __extension__ using Half = _Float16;
  const auto half = [](uint64_t code) { return std::bit_cast<Half>(static_cast<uint16_t>(code)); };
  const auto expect = [&](ScalarOperation operation, uint64_t x, uint64_t y, Half theirs) {
    const uint64_t ours = compute(operation, kFp16, x, y, 0).code, code = std::bit_cast<uint16_t>(theirs);
    if (is_nan(code)) {
      ASSERT_EQ(ours, 0x7E00u);
    } else {
      ASSERT_EQ(ours, code) << operations()[static_cast<size_t>(operation)].name << std::hex << " " << x << " " << y;
    }
  };
  std::mt19937_64 random(2);
  for (int i = 0; i < 300'000; ++i) {
    const uint64_t x = draw(random), y = draw(random);
    ASSERT_NO_FATAL_FAILURE(expect(ScalarOperation::add, x, y, static_cast<Half>(half(x) + half(y))));
    ASSERT_NO_FATAL_FAILURE(expect(ScalarOperation::sub, x, y, static_cast<Half>(half(x) - half(y))));
    ASSERT_NO_FATAL_FAILURE(expect(ScalarOperation::mul, x, y, static_cast<Half>(half(x) * half(y))));
    ASSERT_NO_FATAL_FAILURE(expect(ScalarOperation::div, x, y, static_cast<Half>(half(x) / half(y))));
  }
#else
  GTEST_SKIP() << "this compiler has no _Float16 for this target";
#endif
}

}  // namespace
}  // namespace halfmark::kernels
