// The pairs that carry training (f32 with f16 and bf16, f64 with all of them) have paths of their own; everything else
// goes through decode and encode. Instruction sets are chosen per function and at run time.
#include "kernels/number/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define HM_AVX2 __attribute__((target("avx2,f16c")))
#endif

namespace halfmark {
namespace {

constexpr uint32_t kSign = 0x80000000, kQuietNan = 0x7fc00000, kInfinity = 0x7f800000;

// fp64 to fp32 by rounding to odd: one more rounding, to at most 22 significant bits, then gives what a single one
// would have (Boldo and Melquiond 2008). fp32's own range does not matter: below its subnormals and above its maximum,
// odd stays odd.
float to_odd_float(double x) {
  const auto y = static_cast<float>(x);
  const auto bits = std::bit_cast<uint32_t>(y);
  if (static_cast<double>(y) == x || (bits & 1) || std::isnan(x)) return y;
  const bool away = std::fabs(x) > std::fabs(static_cast<double>(y));
  return std::bit_cast<float>(away ? bits + 1 : bits - 1);
}

// Integer rounding of an fp32 code at bit `drop`, without branches so that the compiler makes vectors of it.
template <int drop>
inline uint32_t round_bits(uint32_t u) {
  constexpr uint32_t kHalf = (uint32_t{1} << (drop - 1)) - 1;
  const uint32_t rounded = (u + kHalf + ((u >> drop) & 1)) & ~((uint32_t{1} << drop) - 1);
  return (u & ~kSign) > kInfinity ? u : rounded;
}

inline uint16_t bf16_code(uint32_t u) {
  const uint32_t rounded = round_bits<16>(u) >> 16;
  return static_cast<uint16_t>((u & ~kSign) > kInfinity ? (u & kSign) >> 16 | 0x7fc0 : rounded);
}

inline uint32_t canonical_nan(uint32_t u) { return (u & ~kSign) > kInfinity ? (u & kSign) | kQuietNan : u; }

#if defined(__x86_64__)

bool has_avx2() {
  // __builtin_cpu_supports does not know "f16c" in every compiler: leaf 1, ecx bit 29 (Intel SDM volume 2, CPUID). That
  // the system saves the wide registers is part of the answer for "avx2".
  unsigned a = 0, b = 0, c = 0, d = 0;
  static const bool answer = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && ((c >> 29) & 1);
  return answer;
}

HM_AVX2 size_t f16_from_f32_wide(const float* source, uint16_t* target, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(source + i);
    __m128i codes = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    if (!_mm256_testz_si256(nan, nan)) {
      const __m128i nan16 = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
      const __m128i quiet =
          _mm_or_si128(_mm_and_si128(codes, _mm_set1_epi16(static_cast<short>(0x8000))), _mm_set1_epi16(0x7e00));
      codes = _mm_blendv_epi8(codes, quiet, nan16);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), codes);
  }
  return i;
}

HM_AVX2 size_t f32_from_f16_wide(const uint16_t* source, float* target, size_t count) {
  size_t i = 0;
  const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kSign)));
  const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kQuietNan)));
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    _mm256_storeu_ps(target + i, _mm256_blendv_ps(x, _mm256_or_ps(_mm256_and_ps(x, sign), quiet), nan));
  }
  return i;
}

HM_AVX2 size_t f16_round_wide(float* values, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const __m256 y = _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm256_storeu_ps(values + i, _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
  return i;
}

#else

bool has_avx2() { return false; }
size_t f16_from_f32_wide(const float*, uint16_t*, size_t) { return 0; }
size_t f32_from_f16_wide(const uint16_t*, float*, size_t) { return 0; }
size_t f16_round_wide(float*, size_t) { return 0; }

#endif

void f16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = has_avx2() ? f16_from_f32_wide(source, target, count) : 0; i < count; ++i)
    target[i] = static_cast<uint16_t>(encode(DType::f16, static_cast<double>(source[i])));
}

void f32_from_f16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = has_avx2() ? f32_from_f16_wide(source, target, count) : 0; i < count; ++i)
    target[i] = static_cast<float>(decode(DType::f16, source[i]));
}

void bf16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = bf16_code(std::bit_cast<uint32_t>(source[i]));
}

void f32_from_bf16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = std::bit_cast<float>(canonical_nan(uint32_t{source[i]} << 16));
}

// f64 <-> f16 and bf16 pass through a small block of fp32: wide enough to be exact one way, rounded to odd the other.
constexpr size_t kBlock = 512;

template <class Narrow>
void narrow_from_f64(const double* source, uint16_t* target, size_t count, Narrow narrow) {
  std::array<float, kBlock> block;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    for (size_t i = 0; i < n; ++i) block[i] = to_odd_float(source[done + i]);
    narrow(block.data(), target + done, n);
  }
}

template <class Widen>
void f64_from_narrow(const uint16_t* source, double* target, size_t count, Widen widen) {
  std::array<float, kBlock> block;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    widen(source + done, block.data(), n);
    for (size_t i = 0; i < n; ++i) target[done + i] = static_cast<double>(block[i]);
  }
}

}  // namespace

std::string_view convert_instructions() { return has_avx2() ? "avx2,f16c" : "scalar"; }

void convert_detail::convert_scalar(DType from, const void* source, DType to, void* target, size_t count) {
  if (from == to) {
    if (count) std::memcpy(target, source, bytes_for(from, count));
    return;
  }
  for (size_t i = 0; i < count; ++i) store(to, target, i, load(from, source, i));
}

void convert_detail::round_array_scalar(const Format& format, float* values, size_t count) {
  if (format.fraction_bits >= kFp32.fraction_bits) return;
  for (size_t i = 0; i < count; ++i)
    if (!std::isnan(values[i])) values[i] = static_cast<float>(round_to(format, static_cast<double>(values[i])));
}

void convert(DType from, const void* source, DType to, void* target, size_t count) {
  const auto pair = [&](DType a, DType b) { return from == a && to == b; };
  const auto* s16 = static_cast<const uint16_t*>(source);
  const auto* s32 = static_cast<const float*>(source);
  const auto* s64 = static_cast<const double*>(source);
  auto* t16 = static_cast<uint16_t*>(target);
  auto* t32 = static_cast<float*>(target);
  auto* t64 = static_cast<double*>(target);
  if (pair(DType::f32, DType::f16)) return f16_from_f32(s32, t16, count);
  if (pair(DType::f16, DType::f32)) return f32_from_f16(s16, t32, count);
  if (pair(DType::f32, DType::bf16)) return bf16_from_f32(s32, t16, count);
  if (pair(DType::bf16, DType::f32)) return f32_from_bf16(s16, t32, count);
  if (pair(DType::f64, DType::f16)) return narrow_from_f64(s64, t16, count, f16_from_f32);
  if (pair(DType::f64, DType::bf16)) return narrow_from_f64(s64, t16, count, bf16_from_f32);
  if (pair(DType::f16, DType::f64)) return f64_from_narrow(s16, t64, count, f32_from_f16);
  if (pair(DType::bf16, DType::f64)) return f64_from_narrow(s16, t64, count, f32_from_bf16);
  if (pair(DType::f64, DType::f32)) {
    for (size_t i = 0; i < count; ++i)
      t32[i] = std::bit_cast<float>(canonical_nan(std::bit_cast<uint32_t>(static_cast<float>(s64[i]))));
    return;
  }
  if (pair(DType::f32, DType::f64)) {
    for (size_t i = 0; i < count; ++i) t64[i] = static_cast<double>(s32[i]);
    return;
  }
  convert_detail::convert_scalar(from, source, to, target, count);
}

void round_array(const Format& format, float* values, size_t count) {
  if (format == kTf32) {
    for (size_t i = 0; i < count; ++i)
      values[i] = std::bit_cast<float>(round_bits<13>(std::bit_cast<uint32_t>(values[i])));
  } else if (format == kBf16) {
    for (size_t i = 0; i < count; ++i)
      values[i] = std::bit_cast<float>(round_bits<16>(std::bit_cast<uint32_t>(values[i])));
  } else if (format == kFp16 && has_avx2()) {
    const size_t done = f16_round_wide(values, count);
    convert_detail::round_array_scalar(format, values + done, count - done);
  } else {
    convert_detail::round_array_scalar(format, values, count);
  }
}

}  // namespace halfmark
