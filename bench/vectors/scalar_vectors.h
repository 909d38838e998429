// Vectors of scalar operations: rows of codes in, a row of result and flags out for each. Without the command line, for
// tests.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <string_view>

#include "bench/vectors/hex_digits.h"
#include "kernels/number/arithmetic.h"

namespace halfmark::bench {

// A type as the vectors name it: every dtype, and tf32, which is stored as f32 (8 hex digits, the low 13 bits zero).
struct VectorType {
  std::string_view name;
  DType dtype;
  const Format* computed;  // tf32's format; null: the dtype says it all
  int digits() const { return hex_digits(dtype); }
};
VectorType vector_type_named(std::string_view name);

// Columns x, y, z (those the operation has) -> result,flags.
void answer_arithmetic(std::istream& in, std::ostream& out, const Format& format, ScalarOperation operation,
                       Rounding rounding);

// Column x -> result,flags. Stochastic rounding: the noise of row i is RandomKey(seed).bits(i), as Cast draws it.
void answer_convert(std::istream& in, std::ostream& out, const VectorType& from, const VectorType& to,
                    Rounding rounding, Overflow overflow, uint64_t seed);

}  // namespace halfmark::bench
