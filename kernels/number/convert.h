// Arrays from one dtype to another and arrays rounded to a format, with the instructions this CPU has. Every path gives
// the bits of encode() and round_to().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark::kernels {

// Where stochastic rounding takes its noise: element i of an array takes word first + i of the stream `seed`. So an
// array gives the same bits in one piece and in any pieces, each with `first` moved on.
struct NoiseStream {
  uint64_t seed = 0;
  uint64_t first = 0;
  constexpr NoiseStream from(uint64_t index) const { return {seed, first + index}; }
};

// The word itself: what round_to takes as its noise (convert_noise.h says how good it is).
uint64_t rounding_noise(uint64_t seed, uint64_t index);

// target[i] = source[i] rounded once; a NaN becomes the quiet NaN of `to`, its sign kept. Equal dtypes: a copy. The
// arrays must not overlap. Packed arrays begin at a whole byte; the spare half of the last one is kept, or is copied
// with it.
void convert(DType from, const void* source, DType to, void* target, size_t count,
             Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// target[i] = source[i] rounded to the format as round_to does. fp64 and fp32 leave a number alone, and so is a NaN
// left. The arrays must be the same or not overlap.
void round_array(const Format& format, const float* source, float* target, size_t count,
                 Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// In place, to nearest even.
inline void round_array(const Format& format, float* values, size_t count) {
  round_array(format, values, values, count);
}

// The instruction set that convert and round_array use here: "avx512", "avx2,f16c" or "scalar".
std::string_view convert_instructions();

namespace convert_detail {

// The ways there are, slowest first; tests and benchmarks run each.
enum class Path : uint8_t { scalar, avx2, avx512 };
std::string_view name_of(Path path);
bool has(Path path);  // does this CPU have the instructions, and does the system keep their registers?
Path best_path();

// As above on one path, which this CPU must have.
void convert(Path path, DType from, const void* source, DType to, void* target, size_t count,
             Rounding rounding = Rounding::near_even, NoiseStream noise = {});
void round_array(Path path, const Format& format, const float* source, float* target, size_t count,
                 Rounding rounding = Rounding::near_even, NoiseStream noise = {});

// The definition, an element at a time through encode() and round_to().
void convert_scalar(DType from, const void* source, DType to, void* target, size_t count,
                    Rounding rounding = Rounding::near_even, NoiseStream noise = {});
void round_array_scalar(const Format& format, const float* source, float* target, size_t count,
                        Rounding rounding = Rounding::near_even, NoiseStream noise = {});

}  // namespace convert_detail

}  // namespace halfmark::kernels
