// The loops of convert.cpp in AVX-512 (F, BW, DQ, VL), sixteen numbers at a time. vcvtneps2bf16 of AVX512-BF16 is not
// used: it treats subnormal numbers as zero (Intel SDM, VCVTNEPS2BF16), and bf16 has fp32's subnormals.
#include <cstdint>

#include "kernels/number/convert_paths.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
// GCC bug 105593: its headers initialise an undefined vector with itself, which triggers a warning.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define HM_VECTOR_CALL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,aes,vaes")))
#define HM_VECTOR HM_VECTOR_CALL __attribute__((always_inline)) inline

namespace halfmark::kernels::convert_detail {
namespace {

constexpr size_t kLanes = 16, kGroup = 4;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr int kTruncate = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
constexpr int kSignBits = static_cast<int>(0x80000000), kExponentBits = 0x7F800000, kQuietNan = 0x7FC00000;
// Truth tables of vpternlog over operands a, b, c.
constexpr int kAndThenOr = 0xEA /* (a & b) | c */, kOrOfAnd = 0xF8 /* a | (b & c) */;

HM_VECTOR __m512i all(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }
HM_VECTOR __m512i bits(__m512 x) { return _mm512_castps_si512(x); }
HM_VECTOR __m512 number(__m512i x) { return _mm512_castsi512_ps(x); }
HM_VECTOR __mmask16 nans(__m512 x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }

// A NaN becomes the quiet NaN of its sign.
HM_VECTOR __m512i canonical(__m512 x) {
  const __m512i u = bits(x);
  return _mm512_mask_ternarylogic_epi32(u, nans(x), _mm512_set1_epi32(kSignBits), _mm512_set1_epi32(kQuietNan),
                                        kAndThenOr);
}

// The noise of kGroup vectors, each of four blocks; first[g] is the first block of vector g. The vectors are
// interleaved, because a single chain of AES rounds would wait for each result.
HM_VECTOR void make_noise(const uint64_t (&first)[kGroup], uint64_t seed, __m512i (&noise)[kGroup]) {
  constexpr __mmask8 kLowWords = 0x55;
  const __m512i weyl = _mm512_set4_epi64(static_cast<int64_t>(kWeylHigh), static_cast<int64_t>(kWeylLow),
                                         static_cast<int64_t>(kWeylHigh), static_cast<int64_t>(kWeylLow));
  __m512i key = _mm512_maskz_set1_epi64(kLowWords, static_cast<int64_t>(seed));
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) {
    const __m512i start = _mm512_maskz_set1_epi64(kLowWords, static_cast<int64_t>(first[g]));
    noise[g] = _mm512_xor_si512(_mm512_add_epi64(start, _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0)), key);
  }
#pragma GCC unroll 5
  for (int round = 1; round <= kNoiseRounds; ++round) {
    key = _mm512_add_epi64(key, weyl);
#pragma GCC unroll 4
    for (__m512i& state : noise)
      state = round < kNoiseRounds ? _mm512_aesenc_epi128(state, key) : _mm512_aesenclast_epi128(state, key);
  }
}

// A Target in registers: the compiler must assume that the loop's stores change the original.
struct Constants {
  __m512i last, half, below_half, kept, noise_shift;  // formats with fp32's exponents
  __m512i smallest, to_c, to_place, to_half, to_scale, overflow, infinity;
  __m512 largest;
};

HM_VECTOR Constants constants_of(const Target& to) {
  const auto drop = static_cast<uint32_t>(to.drop), fraction = 23 - drop, last = uint32_t{1} << drop;
  Constants k;
  k.last = all(last), k.half = all(last >> 1), k.below_half = all((last >> 1) - 1), k.kept = all(~(last - 1));
  k.noise_shift = all(32 - drop);
  k.smallest = all(to.smallest), k.overflow = all(to.overflow), k.infinity = all(to.infinity);
  k.largest = _mm512_set1_ps(to.largest);
  // Powers of two relative to the exponent e of a number: e +
  // drop, e - fraction, e - fraction - 1, 32 - (e - fraction).
  k.to_c = all(drop << 23), k.to_place = all(fraction << 23), k.to_half = all((fraction + 1) << 23);
  k.to_scale = all((32 + 127 + 127 + fraction) << 23);
  return k;
}

// Formats with fp32's exponents drop the low bits of the code; carries and subnormal numbers need no special case.
template <Rounding rounding>
HM_VECTOR __m512 round_wide(__m512 x, const Constants& k, __m512i noise) {
  const __m512i u = bits(x);
  __m512i sum = u;
  if constexpr (rounding == Rounding::near_even) {
    sum = _mm512_add_epi32(u, k.below_half);
    sum = _mm512_mask_sub_epi32(sum, _mm512_test_epi32_mask(u, k.last), sum, all(~uint32_t{0}));
  } else if constexpr (rounding == Rounding::near_away) {
    sum = _mm512_add_epi32(u, k.half);
  } else if constexpr (rounding == Rounding::stochastic) {
    // Rounds up where noise < lost, i.e. where adding the complement of the noise carries.
    const __m512i complement = _mm512_xor_si512(noise, all(~uint32_t{0}));
    sum = _mm512_add_epi32(u, _mm512_srlv_epi32(complement, k.noise_shift));
  }
  return number(_mm512_mask_and_epi32(u, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), sum, k.kept));
}

// Formats with fewer exponents: c is a power of two whose last place is the last one kept, so adding it to the
// magnitude rounds there and subtracting it is exact. For magnitudes so large that c wraps, the result is the magnitude
// itself or a NaN, neither of which is <= largest. `doubt` marks elements that 32 bits of noise do not decide.
template <Rounding rounding>
HM_VECTOR __m512 round_narrow(__m512 x, const Constants& k, __m512i noise, __mmask16& doubt) {
  const __m512i u = bits(x);
  const __m512 magnitude = _mm512_abs_ps(x);
  const __m512i exponent = _mm512_max_epu32(_mm512_and_si512(u, _mm512_set1_epi32(kExponentBits)), k.smallest);
  const __m512 c = number(_mm512_add_epi32(exponent, k.to_c));
  constexpr int kMode = rounding == Rounding::near_even ? kNearest : kTruncate;
  __m512 y = _mm512_sub_round_ps(_mm512_add_round_ps(magnitude, c, kMode), c, kNearest);
  if constexpr (rounding == Rounding::near_away || rounding == Rounding::stochastic) {
    const __m512 place = number(_mm512_sub_epi32(exponent, k.to_place));
    const __m512 lost = _mm512_sub_round_ps(magnitude, y, kNearest);
    __mmask16 up = 0;
    if constexpr (rounding == Rounding::near_away) {
      up = _mm512_cmp_ps_mask(lost, number(_mm512_sub_epi32(exponent, k.to_half)), _CMP_GE_OQ);
    } else {
      // lost / place * 2^32: noise below this value rounds up. The product is exact; its fraction is truncated.
      const __m512 scale = number(_mm512_sub_epi32(k.to_scale, exponent));
      const __m512i level = _mm512_cvttps_epu32(_mm512_mul_round_ps(lost, scale, kNearest));
      up = _mm512_cmplt_epu32_mask(noise, level);
      doubt = _mm512_cmpeq_epi32_mask(noise, level);
    }
    y = _mm512_mask_add_round_ps(y, up, y, place, kNearest);
  }
  __m512i v = _mm512_mask_mov_epi32(bits(y), _mm512_cmp_ps_mask(y, k.largest, _CMP_NLE_UQ), k.overflow);
  if constexpr (rounding == Rounding::toward_zero) {  // otherwise infinity is replaced as overflows are
    const __mmask16 infinite = _mm512_cmpeq_epi32_mask(bits(magnitude), _mm512_set1_epi32(kExponentBits));
    v = _mm512_mask_mov_epi32(v, infinite, k.infinity);
  }
  const __mmask16 numbers = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
  return number(_mm512_mask_ternarylogic_epi32(u, numbers, _mm512_set1_epi32(kSignBits), v, kAndThenOr));
}

// fp16 through the conversion to f16 and back, which keeps subnormals whatever MXCSR says.
template <Rounding rounding>
HM_VECTOR __m512 round_half(__m512 x) {
  constexpr int kMode = rounding == Rounding::near_even ? kNearest : kTruncate;
  return _mm512_mask_mov_ps(_mm512_cvtph_ps(_mm512_cvtps_ph(x, kMode)), nans(x), x);
}

// kGroup vectors, `stride` elements apart.
template <Kind kind, Rounding rounding, bool stream>
HM_VECTOR void round_group(const Target& to, const Constants& constants, const float* source, float* target,
                           size_t stride, NoiseStream noise) {
  __m512i random[kGroup]{};
  if constexpr (rounding == Rounding::stochastic) {
    uint64_t first[kGroup];
#pragma GCC unroll 4
    for (size_t g = 0; g < kGroup; ++g) first[g] = (noise.first + g * stride) / kBlockWords;
    make_noise(first, noise.seed, random);
  }
  __m512 x[kGroup], y[kGroup];
  __mmask16 doubt[kGroup]{};
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) x[g] = _mm512_loadu_ps(source + g * stride);
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) {
    if constexpr (kind == Kind::wide)
      y[g] = round_wide<rounding>(x[g], constants, random[g]);
    else if constexpr (kind == Kind::narrow)
      y[g] = round_narrow<rounding>(x[g], constants, random[g], doubt[g]);
    else
      y[g] = round_half<rounding>(x[g]);
  }
  // Happens once in 2^26 groups.
  if (rounding == Rounding::stochastic && __builtin_expect((doubt[0] | doubt[1] | doubt[2] | doubt[3]) != 0, 0)) {
    for (size_t g = 0; g < kGroup; ++g) {
      alignas(64) float before[kLanes], after[kLanes];
      _mm512_store_ps(before, x[g]);
      round_array_scalar(to.format, before, after, kLanes, rounding, noise.from(g * stride));
      y[g] = _mm512_load_ps(after);
    }
  }
#pragma GCC unroll 4
  for (size_t g = 0; g < kGroup; ++g) {
    if constexpr (stream)
      _mm512_stream_ps(target + g * stride, y[g]);
    else
      _mm512_storeu_ps(target + g * stride, y[g]);
  }
}

#include "kernels/number/convert_driver.h"

HM_VECTOR_CALL void f16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    const __m512 x = number(canonical(_mm512_loadu_ps(source + i)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i), _mm512_cvtps_ph(x, kNearest));
  }
}

HM_VECTOR_CALL void f32_from_f16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i));
    _mm512_storeu_ps(target + i, number(canonical(_mm512_cvtph_ps(codes))));
  }
}

HM_VECTOR_CALL void bf16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    // The quiet NaN has no bits that would carry.
    const __m512i u = canonical(_mm512_loadu_ps(source + i));
    const __mmask16 odd = _mm512_test_epi32_mask(u, all(0x10000));
    __m512i sum = _mm512_add_epi32(u, all(0x7FFF));
    sum = _mm512_mask_sub_epi32(sum, odd, sum, all(~uint32_t{0}));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
  }
}

HM_VECTOR_CALL void f32_from_bf16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i));
    const __m512 x = number(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
    _mm512_storeu_ps(target + i, number(canonical(x)));
  }
}

// As in round_narrow. The sum with c has the kept digits in its fraction; the exponent is added to them as in any code.
HM_VECTOR_CALL void bytes_from_f32(const ByteCodes& codes, const float* source, uint8_t* target, size_t count) {
  const ByteCodes to = codes;  // the loop's stores cannot change it
  const __m512i shift = all(static_cast<uint32_t>(to.drop)), sign_shift = all(static_cast<uint32_t>(to.sign_shift));
  for (size_t i = 0; i < count; i += kStep) {
    const __m512 x = _mm512_loadu_ps(source + i);
    // Infinity also becomes a number that overflows.
    const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(x), _mm512_set1_ps(to.beyond));
    const __m512i exponent =
        _mm512_max_epu32(_mm512_and_si512(bits(magnitude), _mm512_set1_epi32(kExponentBits)), all(to.smallest));
    const __m512i c = _mm512_add_epi32(exponent, all(static_cast<uint32_t>(to.drop) << 23));
    const __m512i digits = _mm512_sub_epi32(bits(_mm512_add_round_ps(magnitude, number(c), kNearest)), c);
    __m512i code = _mm512_add_epi32(digits, _mm512_srlv_epi32(_mm512_sub_epi32(exponent, all(to.smallest)), shift));
    code = _mm512_mask_mov_epi32(code, _mm512_cmpgt_epi32_mask(code, all(to.largest)), all(to.overflow));
    code = _mm512_mask_mov_epi32(code, nans(x), all(to.nan));
    code = _mm512_ternarylogic_epi32(code, _mm512_srlv_epi32(bits(x), sign_shift), all(to.sign), kOrOfAnd);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), _mm512_cvtepi32_epi8(code));
  }
}

// Through f16, which has the same bit order and whose subnormals the conversion reads exactly.
HM_VECTOR_CALL void f32_from_bytes(const ByteCodes& from, const uint8_t* source, float* target, size_t count) {
  const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(from.sign));
  const __m256i rest = _mm256_set1_epi16(static_cast<int16_t>(from.sign - 1));
  const __m256i first_nan = _mm256_set1_epi16(static_cast<int16_t>(from.first_nan));
  const __m128i shift = _mm_cvtsi32_si128(from.half_shift), sign_shift = _mm_cvtsi32_si128(from.sign_shift - 16);
  const __m512 scale = _mm512_set1_ps(from.half_scale);
  for (size_t i = 0; i < count; i += kStep) {
    const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
    const __m256i magnitude = _mm256_and_si256(codes, rest);
    const __m256i half = _mm256_or_si256(_mm256_sll_epi16(magnitude, shift),
                                         _mm256_sll_epi16(_mm256_and_si256(codes, sign), sign_shift));
    const __m512 x = _mm512_mul_round_ps(_mm512_cvtph_ps(half), scale, kNearest);
    const __mmask16 nan = _mm256_cmpge_epi16_mask(magnitude, first_nan);
    _mm512_storeu_ps(target + i, number(_mm512_mask_ternarylogic_epi32(bits(x), nan, _mm512_set1_epi32(kSignBits),
                                                                       _mm512_set1_epi32(kQuietNan), kAndThenOr)));
  }
}

HM_VECTOR_CALL void f32_from_f64(const double* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    const __m256 y = _mm512_cvt_roundpd_ps(_mm512_loadu_pd(source + i), kNearest);
    const __m256i quiet =
        _mm256_mask_ternarylogic_epi32(_mm256_castps_si256(y), _mm256_cmp_ps_mask(y, y, _CMP_UNORD_Q),
                                       _mm256_set1_epi32(kSignBits), _mm256_set1_epi32(kQuietNan), kAndThenOr);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i), quiet);
  }
}

HM_VECTOR_CALL void odd_from_f64(const double* source, float* target, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    const __m512d x = _mm512_loadu_pd(source + i);
    const __m256 y = _mm512_cvt_roundpd_ps(x, kTruncate);
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(y), x, _CMP_NEQ_OQ);
    const __m256i u = _mm256_castps_si256(y);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i),
                        _mm256_mask_or_epi32(u, inexact, u, _mm256_set1_epi32(1)));
  }
}

constexpr Loops kLoops{round,          f16_from_f32,   f32_from_f16, bf16_from_f32, f32_from_bf16,
                       bytes_from_f32, f32_from_bytes, f32_from_f64, odd_from_f64};

}  // namespace

const Loops* avx512_loops() { return &kLoops; }

}  // namespace halfmark::kernels::convert_detail

#else
const halfmark::kernels::convert_detail::Loops* halfmark::kernels::convert_detail::avx512_loops() { return nullptr; }
#endif
