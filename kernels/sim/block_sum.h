// One fused sum in exact integer arithmetic: the slow and simple form of what the vector engines do.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels::block_sum {

// A term of the sum: value 2^(exponent - fraction_bits). A value of 0 raises the largest exponent to its own if
// `counts` (a group of products that cancels), otherwise only to e_zero.
struct Part {
  int64_t value = 0;
  int exponent = 0;
  int fraction_bits = 0;
  bool counts = false;
};

// Aligns, truncates, adds and rounds to a code of the rounding's format. The caller handles specials.
uint32_t sum(const BlockSum& block, std::span<const Part> parts);

// The effect of infinities and NaNs, term by term: a set of TermKind.
unsigned special_of(const Term& a, const Term& b);
// The resulting code for a set that is not empty.
uint32_t special_code(BlockRounding rounding, unsigned seen);

}  // namespace halfmark::kernels::block_sum
