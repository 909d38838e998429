// Arrays from one dtype to another, with the instructions this CPU has. Every path gives the codes that encode() gives.
#pragma once

#include <cstddef>

#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark {

// target[i] = source[i] rounded once to nearest even; a NaN becomes the quiet NaN of `to`, its sign kept. Equal dtypes:
// a copy. The arrays must not overlap. Packed arrays begin at a whole byte; the spare half of the last one is kept, or
// is copied with it.
void convert(DType from, const void* source, DType to, void* target, size_t count);

// Each value rounded to the format to nearest even, in place, as round_to does; fp64 and fp32 leave it alone, and so is
// a NaN.
void round_array(const Format& format, float* values, size_t count);

// The instruction set that convert and round_array use here: "avx2,f16c" or "scalar".
std::string_view convert_instructions();

namespace convert_detail {
// The plain paths, for comparison.
void convert_scalar(DType from, const void* source, DType to, void* target, size_t count);
void round_array_scalar(const Format& format, float* values, size_t count);
}  // namespace convert_detail

}  // namespace halfmark
