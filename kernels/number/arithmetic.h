// Scalar arithmetic and conversion on codes, with the flags of IEEE 754: what one operation answers, to the bit.
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
  kUnderflow = 2,  // inexact, and tiny: below the normal numbers even when rounded with an exponent without bounds
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

// x + y, x - y, x * y, x / y, x * y + z, sqrt(x) of codes of a format of at most 16 bits (not e8m0: Error), with one
// rounding; operands an operation does not have are ignored. Overflow follows the format's own rule.
// A NaN that results is the default quiet NaN, positive (7e00 in fp16, 7fc0 in bf16), whatever the operands: as RISC-V
// and SoftFloat for it do; x86 hands a payload on. A signalling NaN (leading fraction bit clear, in formats with
// infinities) is invalid, and so is infinity * 0 + z for every z, a quiet NaN included (RISC-V; x86 says otherwise).
Result compute(ScalarOperation operation, const Format& format, uint64_t x, uint64_t y, uint64_t z,
               Rounding rounding = Rounding::near_even);

// A code of one format to another (64 bits at most), rounded once; NaNs as above. Beyond IEEE 754: an infinity that the
// format or the rule turns into something else is overflow and inexact; a NaN into a format without NaN is invalid; a
// zero into e8m0 underflows, a sign lost there is inexact.
Result convert_code(const Format& from, uint64_t code, const Format& to, Rounding rounding = Rounding::near_even,
                    Overflow overflow = Overflow::format_default, uint64_t noise = 0);

// The same between stored types, integers among them: out of an integer exactly; into one rounded as asked, and what it
// cannot hold is clamped (a NaN: 0) and invalid.
Result convert_code(DType from, uint64_t code, DType to, Rounding rounding = Rounding::near_even,
                    Overflow overflow = Overflow::format_default, uint64_t noise = 0);

}  // namespace halfmark::kernels
