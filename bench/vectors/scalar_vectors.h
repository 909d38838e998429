// Scalar operations and conversions of codes: CSV rows in, result and
// flags out for each. Independent of the command line, for tests.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <ostream>
#include <string_view>

#include "bench/namespaces.h"
#include "bench/vectors/hex_digits.h"
#include "kernels/number/arithmetic.h"
#include "kernels/number/convert.h"
#include "kernels/number/quantizer.h"

namespace halfmark::bench {

// A type as named in vectors: every dtype, and tf32, which is stored as f32 (8 hex digits, the low 13 bits are zero).
struct VectorType {
  std::string_view name;
  DType dtype;
  const Format* computed;  // the format of tf32; null: the format of the dtype
  int digits() const { return hex_digits(dtype); }
};
VectorType vector_type_named(std::string_view name);

// Columns x, y, z (as many as the operation has operands) -> result,flags.
void answer_arithmetic(std::istream& in, std::ostream& out, const Format& format, ScalarOperation operation,
                       Rounding rounding);

// Column x -> result,flags. Stochastic rounding: row i is rounded as element noise.first + i of a Cast whose noise is
// noise.seed, or of an array that convert() or round_array() is given with this noise.
void answer_convert(std::istream& in, std::ostream& out, const VectorType& from, const VectorType& to,
                    Rounding rounding, Overflow overflow, NoiseStream noise = {});

// Column x, the f32 codes of a matrix row by row -> code,decode,scale for each element: its code; what the code is multiplied
// by, in f32, without the scale of a tensor; that factor's code where it is stored in 8 bits, else 00. Throws Error if the
// elements are no whole rows of `depth`; 0: one row. `noise`: as in quantize().
void answer_quantize(std::istream& in, std::ostream& out, const Quantizer& quantizer, size_t depth, DType input,
                     std::optional<NoiseStream> noise);

}  // namespace halfmark::bench
