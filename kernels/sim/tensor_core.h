// How an NVIDIA tensor core computes a dot product, bit for bit: one fused sum over a block of products, and a table
// with one row for each instruction that differs. The algorithm and its sources: kernels/sim/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark {

struct Architecture {
  std::string_view name;   // as in "sim:hopper"
  std::string_view about;  // the GPUs it stands for
};

// How the sum of a block leaves the adder.
enum class BlockRounding : uint8_t {
  truncate_fp32,   // toward zero to fp32, overflow to infinity
  near_even_fp16,  // straight from the accumulator, no stop at fp32
};

// A block adds `products` exact products and one addend c in one fixed-point sum and rounds once.
struct TensorCore {
  std::string_view architecture;
  std::string_view instruction;
  DType operand;  // of a and b
  DType result;   // of c and d
  int products;   // L: in one block; longer K chains blocks in increasing k, each result being the next one's c
  int kept_fraction_bits;  // F: below the largest exponent; what lies lower is cut off
  int zero_exponent;       // e_zero: a zero among the terms raises the largest exponent at least to this
  BlockRounding rounding;
  std::string_view source;  // of L, F and e_zero
};

std::span<const Architecture> architectures();
std::span<const TensorCore> tensor_cores();
// The instruction for these types, or null.
const TensorCore* tensor_core(std::string_view architecture, DType operand, DType result);

// An operand taken apart: (-1)^s significand 2^(exponent - fraction bits), the significand not normalised.
struct Term {
  int32_t significand = 0;  // with its sign; 0 for zeros and specials
  int16_t exponent = 0;
  uint8_t special = 0;  // kFinite, kPositiveInfinity, ...
};
enum TermKind : uint8_t { kFinite = 0, kPositiveInfinity = 1, kNegativeInfinity = 2, kNotANumber = 4 };

Term take_apart(DType dtype, uint64_t code);
std::vector<Term> take_apart(DType dtype, const void* codes, size_t count);

// d = a . b + c over k terms, chained in blocks; a last block that is not full is filled up with +0 times +0, as a
// library pads K. c and the result are codes of core.result. `any_special`: whether a or b may hold an infinity or a
// NaN.
uint32_t dot(const TensorCore& core, const Term* a, const Term* b, size_t k, uint32_t c, bool any_special = true);

// The same from codes, for tests and for people.
uint32_t dot(const TensorCore& core, std::span<const uint16_t> a, std::span<const uint16_t> b, uint32_t c);

}  // namespace halfmark
