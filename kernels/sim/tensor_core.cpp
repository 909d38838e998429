#include "kernels/sim/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/sim/block_sum.h"

namespace halfmark::kernels {
namespace {

using block_sum::Part;

constexpr size_t kGroup = 16;  // products that FP4 adds before anything is aligned

// A scale as significand 2^(exponent - 3).
struct Scale {
  int significand = 8, exponent = 0;
  bool nan = false;
};

Scale take_apart_scale(DType type, uint8_t code) {
  if (type == DType::e8m0) return {8, code - 127, code == 0xFF};  // code 0 is 2^-127, not zero
  HM_CHECK(type == DType::e4m3, "tensor cores take no scales of type " + std::string(name_of(type)));
  const int field = (code >> 3) & 15, fraction = code & 7;  // ue4m3: the sign is ignored
  return {fraction + (field ? 8 : 0), std::max(field, 1) - 7, (code & 0x7F) == 0x7F};
}

Part addend(const TensorCore& core, const Term& c) { return {c.significand, c.exponent, core.result.fraction_bits}; }

// What the same number is as an fp16 operand: subnormal only below 2^-14.
Term unpacked(Term term, const Format& format) {
  const auto digits = static_cast<int>(std::bit_width(static_cast<uint32_t>(std::abs(term.significand))));
  if (digits == 0) return term;
  const int up = std::min(format.fraction_bits + 1 - digits, term.exponent - kFp16.min_exponent());
  return {term.significand * (1 << up), static_cast<int16_t>(term.exponent - up), term.special};
}

// One fused sum of at most L products; `scale` is added to every product's exponent.
uint32_t fused(const TensorCore& core, const Operand& a, const Operand& b, std::span<const size_t> which, uint32_t code,
               int scale = 0) {
  const Term c = take_apart(core.result, code);
  unsigned seen = c.special;
  std::array<Part, 65> parts;
  size_t n = 0;
  parts[n++] = addend(core, c);
  const int fraction_bits = a.format.fraction_bits + b.format.fraction_bits;
  for (const size_t i : which) {
    const Term zero{};
    Term x = i < a.terms.size() ? a.terms[i] : zero, y = i < b.terms.size() ? b.terms[i] : zero;
    if (core.summation == Summation::interleaved && core.operands == Operands::fp8)
      x = unpacked(x, a.format), y = unpacked(y, b.format);
    seen |= block_sum::special_of(x, y);
    // The exponent of a product is the sum of its factors' exponents, not renormalised.
    parts[n++] = {int64_t{x.significand} * y.significand, x.exponent + y.exponent + scale, fraction_bits};
  }
  if (seen) return block_sum::special_code(core.block.rounding, seen);
  return block_sum::sum(core.block, {parts.data(), n});
}

// c + sum, one ordinary addition to nearest even in the result's format.
uint32_t add(const TensorCore& core, uint32_t sum, uint32_t c) {
  const DType dtype = result_dtype(core);
  // fp64 represents the sum of two fp16 numbers exactly; for two fp32 numbers the host's addition is correctly rounded.
  const double total = dtype == DType::f16 ? decode(dtype, sum) + decode(dtype, c)
                                           : static_cast<double>(std::bit_cast<float>(sum) + std::bit_cast<float>(c));
  if (std::isnan(total)) return block_sum::special_code(core.block.rounding, kNotANumber);
  return static_cast<uint32_t>(encode(dtype, total));
}

// FP4: groups of 16 products are added exactly; the scaled groups are the terms. A group whose products are all zero,
// or with scale zero, is not a term; a group that cancels still counts.
uint32_t grouped(const TensorCore& core, const Operand& a, const Operand& b, size_t first, size_t k, uint32_t code) {
  const Term c = take_apart(core.result, code);
  unsigned seen = c.special;
  std::array<Part, 5> parts;
  size_t n = 0;
  if (c.significand) parts[n++] = addend(core, c);
  const auto block = static_cast<size_t>(core.scaling.block);
  for (size_t begin = first; begin < std::min(first + static_cast<size_t>(core.depth()), k); begin += kGroup) {
    const Scale x = take_apart_scale(core.scaling.type, a.scales[begin / block]);
    const Scale y = take_apart_scale(core.scaling.type, b.scales[begin / block]);
    if (x.nan || y.nan) seen |= kNotANumber;
    int64_t total = 0;
    bool any = false;
    for (size_t i = begin; i < std::min(begin + kGroup, k); ++i) {
      // e2m1 has exponents 0 .. 2, so a product is a whole number of quarters.
      const int64_t product = int64_t{a.terms[i].significand} * b.terms[i].significand
                              << (a.terms[i].exponent + b.terms[i].exponent);
      total += product, any = any || product;
    }
    const int64_t scaled = total * x.significand * y.significand;
    if (any && x.significand && y.significand) parts[n++] = {scaled, x.exponent + y.exponent, 2 + 3 + 3, true};
  }
  if (seen) return block_sum::special_code(core.block.rounding, seen);
  return block_sum::sum(core.block, {parts.data(), n});
}

uint32_t one_block(const TensorCore& core, const Operand& a, const Operand& b, size_t first, uint32_t c) {
  std::array<size_t, 64> which;
  size_t n = 0;
  while (n < static_cast<size_t>(core.block.products)) which[n] = first + n, ++n;
  int scale = 0;
  if (core.scaling.block) {
    const auto at = first / static_cast<size_t>(core.scaling.block);
    const Scale x = take_apart_scale(core.scaling.type, a.scales[at]);
    const Scale y = take_apart_scale(core.scaling.type, b.scales[at]);
    if (x.nan || y.nan) return block_sum::special_code(core.block.rounding, kNotANumber);
    scale = x.exponent + y.exponent;
  }
  return fused(core, a, b, {which.data(), n}, c, scale);
}

uint32_t interleaved(const TensorCore& core, const Operand& a, const Operand& b, size_t first, uint32_t c) {
  const auto depth = static_cast<size_t>(core.depth());
  uint32_t total = 0;
  for (const size_t half : {size_t{0}, size_t{2}}) {
    std::array<size_t, 64> which;
    size_t n = 0;
    for (size_t k = 0; k < depth; ++k)
      if ((k & 2) == half) which[n++] = first + k;
    total = fused(core, a, b, {which.data(), n}, total);
  }
  return add(core, total, c);
}

uint32_t widened(const TensorCore& core, uint32_t c) {
  if (core.addend == core.result) return c;
  return static_cast<uint32_t>(encode(DType::f32, decode(DType::f16, c)));
}

}  // namespace

DType result_dtype(const TensorCore& core) {
  if (core.result == kFp16) return DType::f16;
  if (core.result == kFp32) return DType::f32;
  throw Error("no codes of 16 or 32 bits for results in " + std::string(core.result.name));
}

bool takes(Operands operands, const Format& format) {
  switch (operands) {
    case Operands::f16:
      return format == kFp16;
    case Operands::bf16:
      return format == kBf16;
    case Operands::tf32:
      return format == kTf32;
    case Operands::fp8:
      return format == kE4m3 || format == kE5m2;
    case Operands::fp4:
      return format == kE2m1;
    case Operands::fp64:
      return format == kFp64;
  }
  return false;
}

Term take_apart(const Format& format, uint32_t code) {
  if (format == kTf32) code >>= 13;  // the low bits of the 32-bit register are dropped, and with them a NaN's payload
  const uint32_t fraction = code & ((uint32_t{1} << format.fraction_bits) - 1);
  const int field = static_cast<int>(code >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
  const bool negative = (code >> (format.fraction_bits + format.exponent_bits)) & 1;
  if (format.is_nan_code(code)) return {0, 0, kNotANumber};
  if ((code & format.all_ones_code()) > format.largest_code())
    return {0, 0, negative ? kNegativeInfinity : kPositiveInfinity};
  const auto magnitude = static_cast<int32_t>(fraction | (field ? uint32_t{1} << format.fraction_bits : 0));
  return {negative ? -magnitude : magnitude, static_cast<int16_t>(std::max(field, 1) - format.bias()), kFinite};
}

uint32_t dot(const TensorCore& core, const Operand& a, const Operand& b, uint32_t c) {
  c = widened(core, c);
  const size_t k = a.terms.size();
  const auto depth = static_cast<size_t>(core.depth());
  switch (core.summation) {
    case Summation::blocks:
      for (size_t first = 0; first < k; first += static_cast<size_t>(core.block.products))
        c = one_block(core, a, b, first, c);
      return c;
    case Summation::interleaved:
      for (size_t first = 0; first < k; first += depth) c = interleaved(core, a, b, first, c);
      return c;
    case Summation::groups:
      for (size_t first = 0; first < k; first += depth) c = grouped(core, a, b, first, k, c);
      return c;
    case Summation::fma_chain:
      break;
  }
  throw Error(std::string(name_of(core.instruction)) + ": fp64 operands have no terms");
}

uint64_t dot(const TensorCore& core, const DotTypes& types, std::span<const uint64_t> a, std::span<const uint64_t> b,
             uint64_t c, std::span<const uint8_t> scale_a, std::span<const uint8_t> scale_b) {
  HM_CHECK(a.size() == b.size(),
           "a dot product of " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " terms");
  HM_CHECK(takes(core.operands, types.a) && takes(core.operands, types.b),
           std::string(name_of(core.instruction)) + " does not multiply " + std::string(types.a.name) + " by " +
               std::string(types.b.name));
  const auto block = static_cast<size_t>(core.scaling.block);
  const size_t scales = block ? (a.size() + block - 1) / block : 0;
  HM_CHECK(scale_a.size() == scales && scale_b.size() == scales,
           std::string(name_of(core.instruction)) + " needs " + std::to_string(scales) + " scales for each operand");
  if (core.summation == Summation::fma_chain) {
    double sum = std::bit_cast<double>(c);
    for (size_t i = 0; i < a.size(); ++i) sum = std::fma(std::bit_cast<double>(a[i]), std::bit_cast<double>(b[i]), sum);
    // The bits of a NaN are not guaranteed; here it is the quiet one.
    return std::bit_cast<uint64_t>(std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum);
  }
  std::vector<Term> x(a.size()), y(b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    x[i] = take_apart(types.a, static_cast<uint32_t>(a[i]));
    y[i] = take_apart(types.b, static_cast<uint32_t>(b[i]));
  }
  return dot(core, {types.a, x, scale_a}, {types.b, y, scale_b}, static_cast<uint32_t>(c));
}

}  // namespace halfmark::kernels
