// What convert.cpp and the loops of each instruction set share. Private to them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/number/convert.h"
#include "kernels/number/convert_noise.h"

namespace halfmark::kernels::convert_detail {

// A format and a rounding as the loops want them. Codes are those of fp32.
struct Target {
  Format format;
  int drop = 0;           // fraction bits that go: 1 to 22
  bool wide = false;      // fp32's own exponent range: rounding is integer arithmetic on the code
  uint32_t smallest = 0;  // the smallest normal number
  float largest = 0;      // the largest number,
  uint32_t overflow = 0;  // what a number becomes that rounds to a larger one,
  uint32_t infinity = 0;  // and what infinity becomes
};

// A dtype of one byte, as the loops want it.
struct ByteCodes {
  int drop = 0;            // 23 - fraction bits
  uint32_t smallest = 0;   // fp32 code of the smallest normal number
  float beyond = 0;        // a power of two that overflows, with room for it in the arithmetic
  int sign_shift = 0;      // from the sign of fp32 down to that of the byte
  uint32_t sign = 0;       // the sign bit
  uint32_t largest = 0;    // code of the largest number
  uint32_t overflow = 0;   // code of what is larger
  uint32_t nan = 0;        // code of the quiet NaN
  uint32_t first_nan = 0;  // least magnitude of a NaN
  int half_shift = 0;      // up to the fraction of an f16,
  float half_scale = 0;    // whose value times this is the value of the byte
};

// Long arrays are rounded in tiles of eight pages that go side by side: a hardware prefetcher stops at the border of a
// page, and eight of them at work keep a core's memory busier than one (measured: 1.4 times in place).
inline constexpr size_t kPage = 4096 / sizeof(float), kTile = 8 * kPage;
// Floats of a cache line: half a line streamed past the caches costs as much as four whole ones.
inline constexpr size_t kLine = 64 / sizeof(float);

// How a format is rounded to: fp32's own exponents, fewer of them, or by the conversion to f16 and back.
enum class Kind : uint8_t { wide, narrow, half };

// The loops of an instruction set. `round` takes a multiple of kRoundStep elements, the others of kStep. `round` wants
// noise.first on a border of blocks, and stores past the caches where `stream` is set, which wants target on a border
// of 64 bytes.
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
  // fp64 to fp32 rounded to odd: one more rounding, to at most 22 significant bits, then gives what a single one would
  // have (Boldo and Melquiond 2008). fp32's own range does not matter: below its subnormals and above its maximum, odd
  // stays odd.
  void (*odd_from_f64)(const double* source, float* target, size_t count);
};
const Loops* avx2_loops();    // null where this build has none
const Loops* avx512_loops();  // likewise

}  // namespace halfmark::kernels::convert_detail
