// The instructions behind the row "fp16-fma". A product of two fp16 numbers is exact in fp32. Its sum with an fp16
// number is rounded to odd there: toward zero, and the last bit is set if bits are lost. A value rounded to odd with
// two bits to spare can be rounded again, to nearest even in fp16, without double-rounding error. With rounding to
// nearest in fp32 instead, one in a hundred sums of 512 products is wrong.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half_fma.h"
#include "kernels/cpu/rounding_mode.h"

#if defined(__x86_64__)
#include <immintrin.h>

// GCC bug 105593: its header triggers a warning about an uninitialised variable in g++ 12.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace halfmark::kernels::half_fma {
namespace {

#define HM_AVX2 __attribute__((target("avx2,f16c")))
#define HM_AVX512 __attribute__((target("avx512f,avx512bw")))
#define HM_NATIVE __attribute__((target("avx512f,avx512bw,avx512vl,avx512fp16")))

// AVX2: the sum is rounded toward zero through the processor's
// rounding mode; it is inexact if sum - p does not return c.

constexpr size_t kAvx2Rows = 4, kAvx2Vectors = 2, kAvx2Lanes = 8;

// With rounding toward zero and lost bits, sum - p is strictly nearer to zero than c, or is exact if |p| >= |c|. In
// both cases its rounded value differs from c. An exact sum returns c.
HM_AVX2 inline __m256 step(__m256 a, __m256 b, __m256 c) {
  const __m256 p = _mm256_mul_ps(a, b), sum = _mm256_add_ps(p, c);
  // An ordered comparison: infinities and NaNs, whose difference is NaN, are not changed.
  const __m256 inexact = _mm256_cmp_ps(_mm256_sub_ps(sum, p), c, _CMP_NEQ_OQ);
  const __m256 odd = _mm256_or_ps(sum, _mm256_and_ps(inexact, _mm256_castsi256_ps(_mm256_set1_epi32(1))));
  return _mm256_cvtph_ps(_mm256_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT));
}

HM_AVX2 __attribute__((noinline)) void chains_avx2(const uint32_t* left, const void* right, size_t depth, float* sum) {
  __m256 c[kAvx2Rows][kAvx2Vectors] = {};
  const auto* b = static_cast<const float*>(right);
  for (size_t k = 0; k < depth; ++k, left += kAvx2Rows, b += kAvx2Vectors * kAvx2Lanes)
    for (size_t r = 0; r < kAvx2Rows; ++r) {
      if (left[r] == kNone) continue;
      const __m256 a = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(left[r])));
      for (size_t v = 0; v < kAvx2Vectors; ++v) c[r][v] = step(a, _mm256_loadu_ps(b + v * kAvx2Lanes), c[r][v]);
    }
  for (size_t r = 0; r < kAvx2Rows; ++r)
    for (size_t v = 0; v < kAvx2Vectors; ++v) _mm256_storeu_ps(sum + (r * kAvx2Vectors + v) * kAvx2Lanes, c[r][v]);
}

void run_avx2(const uint32_t* left, const void* right, size_t depth, float* sum) {
  const RoundingTowardZero mode;
  chains_avx2(left, right, depth, sum);
}

// AVX-512: the sum rounded down and rounded up. If inexact, exactly
// one of the two neighbours is odd; if exact, both are equal.

constexpr size_t kAvx512Rows = 4, kAvx512Vectors = 4, kAvx512Lanes = 16;

HM_AVX512 inline __m512 step(__m512 a, __m512 b, __m512 c) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC, kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
  const __m512 p = _mm512_mul_ps(a, b);
  const __m512 down = _mm512_add_round_ps(p, c, kDown);
  const __mmask16 down_is_even = _mm512_testn_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
  // For the two zeros of an exact cancellation this picks +0, as rounding to nearest even does.
  const __m512 odd = _mm512_mask_add_round_ps(down, down_is_even, p, c, kUp);
  return _mm512_cvtph_ps(_mm512_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

HM_AVX512 void run_avx512(const uint32_t* left, const void* right, size_t depth, float* sum) {
  __m512 c[kAvx512Rows][kAvx512Vectors];
  for (auto& row : c)
    for (__m512& x : row) x = _mm512_setzero_ps();
  const auto* b = static_cast<const float*>(right);
  for (size_t k = 0; k < depth; ++k, left += kAvx512Rows, b += kAvx512Vectors * kAvx512Lanes)
    for (size_t r = 0; r < kAvx512Rows; ++r) {
      if (left[r] == kNone) continue;
      const __m512 a = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(left[r])));
      for (size_t v = 0; v < kAvx512Vectors; ++v) c[r][v] = step(a, _mm512_loadu_ps(b + v * kAvx512Lanes), c[r][v]);
    }
  for (size_t r = 0; r < kAvx512Rows; ++r)
    for (size_t v = 0; v < kAvx512Vectors; ++v)
      _mm512_storeu_ps(sum + (r * kAvx512Vectors + v) * kAvx512Lanes, c[r][v]);
}

// AVX512-FP16: the instruction itself, which rounds once and does not flush subnormals.

constexpr size_t kNativeRows = 8, kNativeVectors = 2, kNativeLanes = 32;

// c + a b. Not an intrinsic, because clang 14 declares it only in files compiled for AVX512-FP16 as a whole.
HM_NATIVE inline __m512i fma_codes(__m512i a, __m512i b, __m512i c) {
  asm("vfmadd231ph %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}

HM_NATIVE void run_native(const uint32_t* left, const void* right, size_t depth, float* sum) {
  __m512i c[kNativeRows][kNativeVectors];
  for (auto& row : c)
    for (__m512i& x : row) x = _mm512_setzero_si512();
  const auto* b = static_cast<const uint16_t*>(right);
  for (size_t k = 0; k < depth; ++k, left += kNativeRows, b += kNativeVectors * kNativeLanes)
    for (size_t r = 0; r < kNativeRows; ++r) {
      if (left[r] == kNone) continue;
      const __m512i a = _mm512_set1_epi32(static_cast<int>(left[r]));
      for (size_t v = 0; v < kNativeVectors; ++v)
        c[r][v] = fma_codes(a, _mm512_loadu_si512(b + v * kNativeLanes), c[r][v]);
    }
  for (size_t r = 0; r < kNativeRows; ++r)
    for (size_t v = 0; v < kNativeVectors; ++v) {
      float* to = sum + (r * kNativeVectors + v) * kNativeLanes;
      _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm512_castsi512_si256(c[r][v])));
      _mm512_storeu_ps(to + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(c[r][v], 1)));
    }
}

}  // namespace

const Engine kAvx2Engine{"avx2", kAvx2Rows, kAvx2Vectors* kAvx2Lanes, false, run_avx2};
const Engine kAvx512Engine{"avx512", kAvx512Rows, kAvx512Vectors* kAvx512Lanes, false, run_avx512};
const Engine kNativeEngine{"avx512fp16", kNativeRows, kNativeVectors* kNativeLanes, true, run_native};

}  // namespace halfmark::kernels::half_fma
#endif
