// Scalar arithmetic and conversion on codes, with the IEEE 754 exception flags: the bit-exact result of one operation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark::kernels {

// The bits of RISC-V's fflags and of SoftFloat's exception flags.
enum Flag : unsigned {
  kInexact = 1,
  kUnderflow = 2,  // inexact and tiny: below the normal numbers even when rounded with an unbounded exponent
  kOverflow = 4,
  kDivideByZero = 8,
  kInvalid = 16,
};

struct Result {
  uint64_t code;
  unsigned flags;
  friend bool operator==(const Result&, const Result&) = default;
};

enum class ScalarOperation : uint8_t { add, sub, mul, div, mul_add, sqrt };

struct OperationRow {
  ScalarOperation operation;
  std::string_view name;
  int operands;
};
std::span<const OperationRow> operations();
const OperationRow& operation_named(std::string_view name);  // throws Error naming the known ones

// x + y, x - y, x * y, x / y, x * y + z and sqrt(x) on codes, rounded once. The format has at most 16 bits and is not
// e8m0 (else Error). Operands that an operation does not use are ignored. Overflow follows the format's own rule.
// NaN results are the positive default quiet NaN (7e00 in fp16, 7fc0 in bf16) whatever the operands, as in RISC-V and
// in SoftFloat's RISC-V build; x86 propagates a payload. A signalling NaN (leading fraction bit clear, in formats with
// infinities) is invalid. So is infinity * 0 + z for every z, including a quiet NaN (as in RISC-V; x86 differs).
Result compute(ScalarOperation operation, const Format& format, uint64_t x, uint64_t y, uint64_t z,
               Rounding rounding = Rounding::near_even);

// Converts a code from one format to another (at most 64 bits), rounded once; NaNs as above. Beyond IEEE 754:
// - an infinity that the format or the rule replaces is overflow and inexact;
// - a NaN to a format without NaN is invalid;
// - a zero to e8m0 underflows, and a sign lost there is inexact.
Result convert_code(const Format& from, uint64_t code, const Format& to, Rounding rounding = Rounding::near_even,
                    Overflow overflow = Overflow::format_default, uint64_t noise = 0);

// The same between stored types, including integers. From an integer: exact. To an integer: rounded as requested;
// values out of range are clamped (NaN becomes 0) and invalid.
Result convert_code(DType from, uint64_t code, DType to, Rounding rounding = Rounding::near_even,
                    Overflow overflow = Overflow::format_default, uint64_t noise = 0);

}  // namespace halfmark::kernels
