// The AVX2 path of dot_matrix: 8 columns at a time.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cpu/rounding_mode.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_engine.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace halfmark::kernels::dot_engine {
namespace {

#define HM_VECTOR_CALL __attribute__((target("avx2,f16c")))
#define HM_VECTOR HM_VECTOR_CALL __attribute__((always_inline)) inline
#define HM_UNROLL _Pragma("GCC unroll 4")

struct Vector {
  // The operations of a tile are exact, truncate on purpose, or specify their own rounding.
  using Rounding = RoundingTowardZero;
  static constexpr size_t kLanes = 8, kRows = 4;
  using F = __m256;
  using I = __m256i;

  HM_VECTOR static F all(float x) { return _mm256_set1_ps(x); }
  HM_VECTOR static I all(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  HM_VECTOR static I all(int x) { return _mm256_set1_epi32(x); }
  HM_VECTOR static F load(const float* p) { return _mm256_loadu_ps(p); }
  HM_VECTOR static I load_words(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  HM_VECTOR static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  HM_VECTOR static void store(void* p, I x) { _mm256_storeu_si256(static_cast<I*>(p), x); }
  HM_VECTOR static F as_float(I x) { return _mm256_castsi256_ps(x); }
  HM_VECTOR static I as_int(F x) { return _mm256_castps_si256(x); }
  // To nearest: the only operation of a tile that rounds and must not truncate.
  HM_VECTOR static F add(F x, F y) {
    const unsigned outside = _mm_getcsr(), nearest = outside & ~static_cast<unsigned>(_MM_ROUND_MASK);
    F sum;
    asm("vldmxcsr %[nearest]\n\tvaddps %[y], %[x], %[sum]\n\tvldmxcsr %[outside]"
        : [sum] "=x"(sum)
        : [x] "x"(x), [y] "x"(y), [nearest] "m"(nearest), [outside] "m"(outside));
    return sum;
  }
  HM_VECTOR static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
  HM_VECTOR static I add(I x, I y) { return _mm256_add_epi32(x, y); }
  HM_VECTOR static I sub(I x, I y) { return _mm256_sub_epi32(x, y); }
  HM_VECTOR static I max(I x, I y) { return _mm256_max_epi32(x, y); }
  HM_VECTOR static I bit_and(I x, I y) { return _mm256_and_si256(x, y); }
  HM_VECTOR static I bit_or(I x, I y) { return _mm256_or_si256(x, y); }
  HM_VECTOR static I bit_xor(I x, I y) { return _mm256_xor_si256(x, y); }
  HM_VECTOR static I add_bytes(I x, I y) { return _mm256_adds_epi8(x, y); }
  HM_VECTOR static I max_bytes(I x, I y) { return _mm256_max_epi8(x, y); }
  HM_VECTOR static I max_where_not_zero(F c, I x, I y) {
    return max(x, bit_and(y, as_int(_mm256_cmp_ps(c, _mm256_setzero_ps(), _CMP_NEQ_OQ))));
  }
  HM_VECTOR static I cut(F x) { return _mm256_cvttps_epi32(x); }

  // Moves byte q of each word to fp32's exponent field, with other bits around it.
  HM_VECTOR static I byte_to_exponent(I bytes, size_t q) {
    return _mm256_srli_epi32(_mm256_sllv_epi32(bytes, _mm256_set1_epi32(24 - 8 * static_cast<int>(q))), 1);
  }
  HM_VECTOR static I larger_exponent(F x, I y, I mask) { return max(bit_and(as_int(x), mask), bit_and(y, mask)); }
  // Negative if x + y overflowed into a 33rd bit.
  HM_VECTOR static I overflow(I sum, I x, I y) { return bit_and(bit_xor(sum, x), bit_xor(sum, y)); }
  HM_VECTOR static bool any_negative(I x) { return _mm256_movemask_ps(as_float(x)) != 0; }
  HM_VECTOR static F where_negative(I x, F yes, F no) { return _mm256_blendv_ps(no, yes, as_float(x)); }
  HM_VECTOR static I shift_right_once(I x) { return _mm256_srai_epi32(x, 1); }

  // The rounding mode makes the conversion truncate.
  HM_VECTOR static F to_float_cut(I x) { return _mm256_cvtepi32_ps(x); }
  HM_VECTOR static F to_float_odd(I x) {
    const F cut_off = to_float_cut(x);
    const I same = _mm256_cmpeq_epi32(cut(cut_off), x);  // -1 or 0
    return as_float(_mm256_or_si256(as_int(cut_off), add(same, all(1))));
  }
  HM_VECTOR static F to_half_and_back(F x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
  HM_VECTOR static I to_half(F x) { return _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
  HM_VECTOR static F from_half(I x) {
    const I packed = _mm256_packus_epi32(x, x);  // within each half
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1)));
  }
  HM_VECTOR static F clamp(F x) {  // the smaller magnitude
    return _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(0x1p100f)), _mm256_set1_ps(-0x1p100f));
  }
};

#include "kernels/sim/dot_kernel.h"

}  // namespace

const Engine& avx2_engine() {
  static const Engine engine{Vector::kLanes, run};
  return engine;
}

}  // namespace halfmark::kernels::dot_engine

#else

namespace halfmark::kernels::dot_engine {

const Engine& avx2_engine() { throw Error("dot_matrix: this processor has no AVX2"); }
}  // namespace halfmark::kernels::dot_engine
#endif
