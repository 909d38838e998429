// Converts arrays between dtypes and rounds arrays to a format, with the vector instructions of this CPU. Every path
// gives the same bits as encode() and round_to().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark::kernels {

// The noise of stochastic rounding: element i of an array uses word first + i of the stream `seed`. An array therefore
// gives the same bits in one piece or in several, if each piece advances `first`.
struct NoiseStream {
  uint64_t seed = 0;
  uint64_t first = 0;
  constexpr NoiseStream from(uint64_t index) const { return {seed, first + index}; }
};

// The noise word that round_to takes (convert_noise.h describes its quality).
uint64_t rounding_noise(uint64_t seed, uint64_t index);

// target[i] = source[i] rounded once; a NaN becomes the quiet NaN of `to` and keeps its sign. Equal dtypes: a copy. The
// arrays must not overlap. Packed arrays start at a whole byte. With an odd count, half of the target's last byte is
// not part of the array: a conversion leaves that half unchanged, a copy overwrites it.
void convert(DType from, const void* source, DType to, void* target, size_t count,
             Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// target[i] = source[i] rounded to the format as round_to does. With fp64 and fp32 numbers are unchanged; NaNs always
// are. The arrays must be identical or disjoint.
void round_array(const Format& format, const float* source, float* target, size_t count,
                 Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// In place, to nearest even.
inline void round_array(const Format& format, float* values, size_t count) {
  round_array(format, values, values, count);
}

// The instruction set that convert and round_array use on this CPU: "avx512", "avx2,f16c" or "scalar".
std::string_view convert_instructions();

namespace convert_detail {

// All paths, slowest first; tests and benchmarks run each of them.
enum class Path : uint8_t { scalar, avx2, avx512 };
std::string_view name_of(Path path);
bool has(Path path);  // does this CPU have the instructions, and does the system save their registers?
Path best_path();

// As above on one given path, which this CPU must support.
void convert(Path path, DType from, const void* source, DType to, void* target, size_t count,
             Rounding rounding = Rounding::near_even, NoiseStream noise = {});
void round_array(Path path, const Format& format, const float* source, float* target, size_t count,
                 Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// The definition: one element at a time through encode() and round_to().
void convert_scalar(DType from, const void* source, DType to, void* target, size_t count,
                    Rounding rounding = Rounding::near_even, NoiseStream noise = {});
void round_array_scalar(const Format& format, const float* source, float* target, size_t count,
                        Rounding rounding = Rounding::near_even, NoiseStream noise = {});

}  // namespace convert_detail

}  // namespace halfmark::kernels
