// What convert.cpp shares with the loops of each instruction set. Private to those files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/number/convert.h"
#include "kernels/number/convert_noise.h"

namespace halfmark::kernels::convert_detail {

// A format and a rounding in the form that the loops need. Codes are those of fp32.
struct Target {
  Format format;
  int drop = 0;           // fraction bits that are dropped: 1 to 22
  bool wide = false;      // fp32's own exponent range: rounding is integer arithmetic on the code
  uint32_t smallest = 0;  // the smallest normal number
  float largest = 0;      // the largest number,
  uint32_t overflow = 0;  // the result where rounding exceeds it,
  uint32_t infinity = 0;  // and the result of infinity
};

// A one-byte dtype in the form that the loops need.
struct ByteCodes {
  int drop = 0;            // 23 - fraction bits
  uint32_t smallest = 0;   // fp32 code of the smallest normal number
  float beyond = 0;        // a power of two that overflows, small enough for the arithmetic
  int sign_shift = 0;      // shift from fp32's sign bit down to the byte's
  uint32_t sign = 0;       // the sign bit
  uint32_t largest = 0;    // code of the largest number
  uint32_t overflow = 0;   // code of anything larger
  uint32_t nan = 0;        // code of the quiet NaN
  uint32_t first_nan = 0;  // smallest magnitude code of a NaN
  int half_shift = 0;      // shift up to the fraction of an f16,
  float half_scale = 0;    // whose value times this is the value of the byte
};

// Long arrays are rounded in tiles of eight pages processed in parallel. A hardware prefetcher stops at a page
// boundary, and eight streams keep a core's memory busier than one (measured: 1.4 times the speed in place).
inline constexpr size_t kPage = 4096 / sizeof(float), kTile = 8 * kPage;
// Floats per cache line: a half line written with streaming stores costs as much as four whole ones.
inline constexpr size_t kLine = 64 / sizeof(float);

// How a format is rounded to: with fp32's own exponents, with fewer of them, or by conversion to f16 and back.
enum class Kind : uint8_t { wide, narrow, half };

// The loops of an instruction set. `round` takes a multiple of kRoundStep elements,
// the others of kStep. `round` needs noise.first at a block boundary. Where `stream`
// is set it uses streaming stores, which need a target aligned to 64 bytes.
inline constexpr size_t kStep = 16, kRoundStep = 64;
struct Loops {
  void (*round)(const Target& to, Rounding rounding, const float* source, float* target, size_t count,
                NoiseStream noise, bool stream);
  void (*f16_from_f32)(const float* source, uint16_t* target, size_t count);
  void (*f32_from_f16)(const uint16_t* source, float* target, size_t count);
  void (*bf16_from_f32)(const float* source, uint16_t* target, size_t count);
  void (*f32_from_bf16)(const uint16_t* source, float* target, size_t count);
  void (*bytes_from_f32)(const ByteCodes& to, const float* source, uint8_t* target, size_t count);
  void (*f32_from_bytes)(const ByteCodes& from, const uint8_t* source, float* target, size_t count);
  void (*f32_from_f64)(const double* source, float* target, size_t count);
  // fp64 to fp32 rounded to odd. One more rounding, to at most 22 significant bits, then gives the same result as a
  // single rounding (Boldo and Melquiond 2008). fp32's range does not matter: odd stays odd below its subnormals and
  // above its maximum.
  void (*odd_from_f64)(const double* source, float* target, size_t count);
};
const Loops* avx2_loops();    // null if this build has none
const Loops* avx512_loops();  // likewise

}  // namespace halfmark::kernels::convert_detail
