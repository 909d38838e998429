// The AVX-512 path of dot_matrix: 16 columns at a time.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/number/error.h"
#include "kernels/sim/dot_engine.h"

#if defined(__x86_64__)
#include <immintrin.h>

// GCC bug 105593: its header triggers a warning about an uninitialised variable in g++ 12.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace halfmark::kernels::dot_engine {
namespace {

#define HM_VECTOR_CALL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define HM_VECTOR HM_VECTOR_CALL __attribute__((always_inline)) inline
#define HM_UNROLL _Pragma("GCC unroll 32")

struct Vector {
  struct Rounding {};  // each conversion specifies its own rounding
  static constexpr size_t kLanes = 16, kRows = 8;
  static constexpr int kCut = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC,
                       kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  using F = __m512;
  using I = __m512i;

  HM_VECTOR static F all(float x) { return _mm512_set1_ps(x); }
  HM_VECTOR static I all(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  HM_VECTOR static I all(int x) { return _mm512_set1_epi32(x); }
  HM_VECTOR static F load(const float* p) { return _mm512_loadu_ps(p); }
  HM_VECTOR static I load_words(const void* p) { return _mm512_loadu_si512(p); }
  HM_VECTOR static void store(void* p, F x) { _mm512_storeu_ps(p, x); }
  HM_VECTOR static void store(void* p, I x) { _mm512_storeu_si512(p, x); }
  HM_VECTOR static F as_float(I x) { return _mm512_castsi512_ps(x); }
  HM_VECTOR static I as_int(F x) { return _mm512_castps_si512(x); }
  HM_VECTOR static F add(F x, F y) { return _mm512_add_ps(x, y); }
  HM_VECTOR static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
  HM_VECTOR static I add(I x, I y) { return _mm512_add_epi32(x, y); }
  HM_VECTOR static I sub(I x, I y) { return _mm512_sub_epi32(x, y); }
  HM_VECTOR static I max(I x, I y) { return _mm512_max_epi32(x, y); }
  HM_VECTOR static I bit_and(I x, I y) { return _mm512_and_si512(x, y); }
  HM_VECTOR static I bit_or(I x, I y) { return _mm512_or_si512(x, y); }
  HM_VECTOR static I bit_xor(I x, I y) { return _mm512_xor_si512(x, y); }
  HM_VECTOR static I add_bytes(I x, I y) { return _mm512_adds_epi8(x, y); }
  HM_VECTOR static I max_bytes(I x, I y) { return _mm512_max_epi8(x, y); }
  HM_VECTOR static I max_where_not_zero(F c, I x, I y) {
    return _mm512_mask_max_epi32(x, _mm512_test_epi32_mask(as_int(c), _mm512_set1_epi32(INT32_MAX)), x, y);
  }
  HM_VECTOR static I cut(F x) { return _mm512_cvttps_epi32(x); }

  // Moves byte q of each word to fp32's exponent field, with other bits around it.
  HM_VECTOR static I byte_to_exponent(I bytes, size_t q) {
    return _mm512_rolv_epi32(bytes, _mm512_set1_epi32(23 - 8 * static_cast<int>(q)));
  }
  HM_VECTOR static I larger_exponent(F x, I y, I mask) {
    return bit_and(as_int(_mm512_range_ps(x, as_float(y), 0b1011)), mask);  // the larger magnitude, without its sign
  }
  // (sum ^ x) & (sum ^ y): negative if x + y overflowed into a 33rd bit.
  HM_VECTOR static I overflow(I sum, I x, I y) { return _mm512_ternarylogic_epi32(sum, x, y, 0x18); }
  HM_VECTOR static bool any_negative(I x) { return _mm512_movepi32_mask(x) != 0; }
  HM_VECTOR static F where_negative(I x, F yes, F no) { return _mm512_mask_blend_ps(_mm512_movepi32_mask(x), no, yes); }
  HM_VECTOR static I shift_right_once(I x) { return _mm512_srai_epi32(x, 1); }
  HM_VECTOR static F to_float_cut(I x) { return _mm512_cvt_roundepi32_ps(x, kCut); }
  HM_VECTOR static F to_float_odd(I x) {
    const I cut_off = as_int(to_float_cut(x));
    const __mmask16 lost = _mm512_cmpneq_epi32_mask(cut(as_float(cut_off)), x);
    return as_float(_mm512_mask_or_epi32(cut_off, lost, cut_off, _mm512_set1_epi32(1)));
  }
  HM_VECTOR static F to_half_and_back(F x) { return _mm512_cvtph_ps(_mm512_cvtps_ph(x, kNearest)); }
  HM_VECTOR static I to_half(F x) { return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, kNearest)); }
  HM_VECTOR static F from_half(I x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
  HM_VECTOR static F clamp(F x) { return _mm512_range_ps(x, _mm512_set1_ps(0x1p100f), 2); }  // the smaller magnitude
};

#include "kernels/sim/dot_kernel.h"

}  // namespace

const Engine& avx512_engine() {
  static const Engine engine{Vector::kLanes, run};
  return engine;
}

}  // namespace halfmark::kernels::dot_engine

#else

namespace halfmark::kernels::dot_engine {

const Engine& avx512_engine() { throw Error("dot_matrix: this processor has no AVX-512"); }
}  // namespace halfmark::kernels::dot_engine
#endif
