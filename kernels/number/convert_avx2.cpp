// The loops of convert.cpp in AVX2 and F16C, eight numbers at a time. convert_avx512.cpp uses the same methods and
// explains the arithmetic.
#include <cstdint>

#include "kernels/number/convert_paths.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define HM_VECTOR_CALL __attribute__((target("avx2,f16c,aes")))
#define HM_VECTOR HM_VECTOR_CALL __attribute__((always_inline)) inline

namespace halfmark::kernels::convert_detail {
namespace {

constexpr size_t kLanes = 8, kGroup = 4;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr int kTruncate = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
constexpr uint32_t kSignBits = 0x80000000, kExponentBits = 0x7F800000, kQuietNan = 0x7FC00000;

HM_VECTOR __m256i all(uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }
HM_VECTOR __m256i bits(__m256 x) { return _mm256_castps_si256(x); }
HM_VECTOR __m256 number(__m256i x) { return _mm256_castsi256_ps(x); }
HM_VECTOR __m256 nans(__m256 x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
HM_VECTOR __m256 magnitude_of(__m256 x) { return _mm256_andnot_ps(number(all(kSignBits)), x); }

HM_VECTOR __m256 canonical(__m256 x) {
  const __m256 quiet = _mm256_or_ps(_mm256_and_ps(x, number(all(kSignBits))), number(all(kQuietNan)));
  return _mm256_blendv_ps(x, quiet, nans(x));
}

// The noise of kGroup vectors, each of two blocks; first[g] is the first block of vector g.
HM_VECTOR void make_noise(const uint64_t (&first)[kGroup], uint64_t seed, __m256i (&noise)[kGroup]) {
  const __m128i weyl = _mm_set_epi64x(static_cast<int64_t>(kWeylHigh), static_cast<int64_t>(kWeylLow));
  __m128i key = _mm_set_epi64x(0, static_cast<int64_t>(seed)), states[2 * kGroup];
#pragma GCC unroll 8
  for (size_t b = 0; b < 2 * kGroup; ++b)
    states[b] = _mm_xor_si128(_mm_cvtsi64_si128(static_cast<int64_t>(first[b / 2] + b % 2)), key);
#pragma GCC unroll 5
  for (int round = 1; round <= kNoiseRounds; ++round) {
    key = _mm_add_epi64(key, weyl);
#pragma GCC unroll 8
    for (__m128i& state : states)
      state = round < kNoiseRounds ? _mm_aesenc_si128(state, key) : _mm_aesenclast_si128(state, key);
  }
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) noise[g] = _mm256_set_m128i(states[2 * g + 1], states[2 * g]);
}

// u plus half a last place, or plus just below half if the last kept bit is 0: the addition before the truncation when
// rounding to nearest even.
HM_VECTOR __m256i plus_near_even(__m256i u, __m256i drop, __m256i below_half) {
  return _mm256_add_epi32(_mm256_add_epi32(u, below_half), _mm256_and_si256(_mm256_srlv_epi32(u, drop), all(1)));
}

// A Target in registers: the compiler must assume that the loop's stores change the original.
struct Constants {
  __m256i drop, half, below_half, kept, noise_shift;  // formats with fp32's exponents
  __m256i smallest, to_c, to_place, to_half, to_scale, overflow, infinity;
  __m256 largest;
};

HM_VECTOR Constants constants_of(const Target& to) {
  const auto drop = static_cast<uint32_t>(to.drop), fraction = 23 - drop, last = uint32_t{1} << drop;
  Constants k;
  k.drop = all(drop), k.half = all(last >> 1), k.below_half = all((last >> 1) - 1), k.kept = all(~(last - 1));
  k.noise_shift = all(32 - drop);
  k.smallest = all(to.smallest), k.overflow = all(to.overflow), k.infinity = all(to.infinity);
  k.largest = _mm256_set1_ps(to.largest);
  k.to_c = all(drop << 23), k.to_place = all(fraction << 23), k.to_half = all((fraction + 1) << 23);
  k.to_scale = all((31 + 127 + 127 + fraction) << 23);
  return k;
}

template <Rounding rounding>
HM_VECTOR __m256 round_wide(__m256 x, const Constants& k, __m256i noise) {
  const __m256i u = bits(x);
  __m256i sum = u;
  if constexpr (rounding == Rounding::near_even) {
    sum = plus_near_even(u, k.drop, k.below_half);
  } else if constexpr (rounding == Rounding::near_away) {
    sum = _mm256_add_epi32(u, k.half);
  } else if constexpr (rounding == Rounding::stochastic) {
    const __m256i complement = _mm256_xor_si256(noise, all(~uint32_t{0}));
    sum = _mm256_add_epi32(u, _mm256_srlv_epi32(complement, k.noise_shift));
  }
  return _mm256_blendv_ps(number(_mm256_and_si256(sum, k.kept)), x, nans(x));
}

// The instruction has no rounding mode. Values to be truncated are rounded to nearest, and one place is subtracted
// where that rounded up. AVX2 also lacks conversion to unsigned integers, so 31 bits of noise are compared; `doubt`
// marks elements that they do not decide.
template <Rounding rounding>
HM_VECTOR __m256 round_narrow(__m256 x, const Constants& k, __m256i noise, __m256i& doubt) {
  const __m256 magnitude = magnitude_of(x);
  const __m256i exponent = _mm256_max_epu32(_mm256_and_si256(bits(x), all(kExponentBits)), k.smallest);
  const __m256 c = number(_mm256_add_epi32(exponent, k.to_c));
  __m256 y = _mm256_sub_ps(_mm256_add_ps(magnitude, c), c);
  if constexpr (rounding != Rounding::near_even) {
    const __m256 place = number(_mm256_sub_epi32(exponent, k.to_place));
    y = _mm256_sub_ps(y, _mm256_and_ps(place, _mm256_cmp_ps(y, magnitude, _CMP_GT_OQ)));
    const __m256 lost = _mm256_sub_ps(magnitude, y);
    __m256 up = _mm256_setzero_ps();
    if constexpr (rounding == Rounding::near_away) {
      up = _mm256_cmp_ps(lost, number(_mm256_sub_epi32(exponent, k.to_half)), _CMP_GE_OQ);
    } else if constexpr (rounding == Rounding::stochastic) {
      const __m256 scale = number(_mm256_sub_epi32(k.to_scale, exponent));
      const __m256i level = _mm256_cvttps_epi32(_mm256_mul_ps(lost, scale));
      const __m256i noise31 = _mm256_srli_epi32(noise, 1);
      up = number(_mm256_cmpgt_epi32(level, noise31));
      doubt = _mm256_cmpeq_epi32(level, noise31);
    }
    y = _mm256_add_ps(y, _mm256_and_ps(place, up));
  }
  y = _mm256_blendv_ps(y, number(k.overflow), _mm256_cmp_ps(y, k.largest, _CMP_NLE_UQ));
  if constexpr (rounding == Rounding::toward_zero) {
    const __m256i infinite = _mm256_cmpeq_epi32(bits(magnitude), all(kExponentBits));
    y = _mm256_blendv_ps(y, number(k.infinity), number(infinite));
  }
  y = _mm256_or_ps(y, _mm256_and_ps(x, number(all(kSignBits))));
  return _mm256_blendv_ps(y, x, nans(x));
}

template <Rounding rounding>
HM_VECTOR __m256 round_half(__m256 x) {
  constexpr int kMode = rounding == Rounding::near_even ? kNearest : kTruncate;
  return _mm256_blendv_ps(_mm256_cvtph_ps(_mm256_cvtps_ph(x, kMode)), x, nans(x));
}

// kGroup vectors, `stride` elements apart.
template <Kind kind, Rounding rounding, bool stream>
HM_VECTOR void round_group(const Target& to, const Constants& constants, const float* source, float* target,
                           size_t stride, NoiseStream noise) {
  __m256i random[kGroup]{};
  if constexpr (rounding == Rounding::stochastic) {
    uint64_t first[kGroup];
#pragma GCC unroll 4
    for (size_t g = 0; g < kGroup; ++g) first[g] = (noise.first + g * stride) / kBlockWords;
    make_noise(first, noise.seed, random);
  }
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) {
    const __m256 x = _mm256_loadu_ps(source + g * stride);
    __m256i doubt = _mm256_setzero_si256();
    __m256 y;
    if constexpr (kind == Kind::wide)
      y = round_wide<rounding>(x, constants, random[g]);
    else if constexpr (kind == Kind::narrow)
      y = round_narrow<rounding>(x, constants, random[g], doubt);
    else
      y = round_half<rounding>(x);
    if (rounding == Rounding::stochastic && __builtin_expect(!_mm256_testz_si256(doubt, doubt), 0)) {
      alignas(32) float before[kLanes], after[kLanes];
      _mm256_store_ps(before, x);
      round_array_scalar(to.format, before, after, kLanes, rounding, noise.from(g * stride));
      y = _mm256_load_ps(after);
    }
    if constexpr (stream)
      _mm256_stream_ps(target + g * stride, y);
    else
      _mm256_storeu_ps(target + g * stride, y);
  }
}

#include "kernels/number/convert_driver.h"

HM_VECTOR_CALL void f16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __m256 x = canonical(_mm256_loadu_ps(source + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), _mm256_cvtps_ph(x, kNearest));
  }
}

HM_VECTOR_CALL void f32_from_f16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(target + i, canonical(_mm256_cvtph_ps(codes)));
  }
}

// Packs sixteen 32-bit words, none above 65535, into 16-bit words in their order.
HM_VECTOR __m256i packed(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
}

HM_VECTOR __m256i bf16_codes(__m256 x) {
  return _mm256_srli_epi32(plus_near_even(bits(canonical(x)), all(16), all(0x7FFF)), 16);
}

HM_VECTOR_CALL void bf16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    const __m256i low = bf16_codes(_mm256_loadu_ps(source + i));
    const __m256i high = bf16_codes(_mm256_loadu_ps(source + i + kLanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i), packed(low, high));
  }
}

HM_VECTOR_CALL void f32_from_bf16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(target + i, canonical(number(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16))));
  }
}

HM_VECTOR __m256i byte_codes(const ByteCodes& to, __m256 x) {
  const __m256 magnitude = _mm256_min_ps(magnitude_of(x), _mm256_set1_ps(to.beyond));
  const __m256i exponent = _mm256_max_epu32(_mm256_and_si256(bits(magnitude), all(kExponentBits)), all(to.smallest));
  const __m256i c = _mm256_add_epi32(exponent, all(static_cast<uint32_t>(to.drop) << 23));
  const __m256i digits = _mm256_sub_epi32(bits(_mm256_add_ps(magnitude, number(c))), c);
  const __m256i field =
      _mm256_srlv_epi32(_mm256_sub_epi32(exponent, all(to.smallest)), all(static_cast<uint32_t>(to.drop)));
  __m256i code = _mm256_add_epi32(digits, field);
  code = _mm256_blendv_epi8(code, all(to.overflow), _mm256_cmpgt_epi32(code, all(to.largest)));
  code = _mm256_blendv_epi8(code, all(to.nan), bits(nans(x)));
  const __m256i sign = _mm256_srlv_epi32(bits(x), all(static_cast<uint32_t>(to.sign_shift)));
  return _mm256_or_si256(code, _mm256_and_si256(sign, all(to.sign)));
}

HM_VECTOR_CALL void bytes_from_f32(const ByteCodes& codes, const float* source, uint8_t* target, size_t count) {
  const ByteCodes to = codes;  // the loop's stores cannot change it
  for (size_t i = 0; i < count; i += kStep) {
    const __m256i words =
        packed(byte_codes(to, _mm256_loadu_ps(source + i)), byte_codes(to, _mm256_loadu_ps(source + i + kLanes)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i),
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
}

HM_VECTOR_CALL void f32_from_bytes(const ByteCodes& from, const uint8_t* source, float* target, size_t count) {
  const __m128i shift = _mm_cvtsi32_si128(from.half_shift), sign_shift = _mm_cvtsi32_si128(from.sign_shift - 16);
  for (size_t i = 0; i < count; i += kLanes) {
    const __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source + i)));
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(static_cast<int16_t>(from.sign - 1)));
    const __m128i sign = _mm_and_si128(codes, _mm_set1_epi16(static_cast<int16_t>(from.sign)));
    const __m128i half = _mm_or_si128(_mm_sll_epi16(magnitude, shift), _mm_sll_epi16(sign, sign_shift));
    const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(from.half_scale));
    const __m128i nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(static_cast<int16_t>(from.first_nan - 1)));
    const __m256 quiet = _mm256_or_ps(_mm256_and_ps(x, number(all(kSignBits))), number(all(kQuietNan)));
    _mm256_storeu_ps(target + i, _mm256_blendv_ps(x, quiet, number(_mm256_cvtepi16_epi32(nan))));
  }
}

// The even 32-bit words.
HM_VECTOR __m128i even_words(__m256i x) {
  return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
}

HM_VECTOR_CALL void f32_from_f64(const double* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(source + i));
    const __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd(source + i + 4));
    _mm256_storeu_ps(target + i, canonical(_mm256_set_m128(high, low)));
  }
}

HM_VECTOR_CALL void odd_from_f64(const double* source, float* target, size_t count) {
  const __m256d sign = _mm256_set1_pd(-0.0);
  for (size_t i = 0; i < count; i += 4) {
    const __m256d x = _mm256_loadu_pd(source + i);
    const __m128 y = _mm256_cvtpd_ps(x);
    const __m256d back = _mm256_cvtps_pd(y);
    // An ordered comparison: false for a NaN.
    const __m128i inexact = even_words(_mm256_castpd_si256(_mm256_cmp_pd(back, x, _CMP_NEQ_OQ)));
    const __m128i larger = even_words(
        _mm256_castpd_si256(_mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, x), _CMP_GT_OQ)));
    const __m128i cut = _mm_add_epi32(_mm_castps_si128(y), larger);  // the code of the next number toward zero
    const __m128i odd = _mm_or_si128(cut, _mm_and_si128(inexact, _mm_set1_epi32(1)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), odd);
  }
}

constexpr Loops kLoops{round,          f16_from_f32,   f32_from_f16, bf16_from_f32, f32_from_bf16,
                       bytes_from_f32, f32_from_bytes, f32_from_f64, odd_from_f64};

}  // namespace

const Loops* avx2_loops() { return &kLoops; }

}  // namespace halfmark::kernels::convert_detail

#else
const halfmark::kernels::convert_detail::Loops* halfmark::kernels::convert_detail::avx2_loops() { return nullptr; }
#endif
