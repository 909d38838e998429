#include "kernels/sim/block_sum.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdlib>

#include "kernels/number/error.h"

namespace halfmark::kernels::block_sum {
namespace {

constexpr Format kE8m13{"e8m13", 8, 13};

constexpr uint32_t kNanF32 = 0x7FFFFFFF, kNanF16 = 0x7FFF;  // the only NaNs these instructions write

// value 2^shift with the magnitude truncated. A left shift stays below 2^63: at most F + 20 significant bits are kept,
// and F is at most 35.
int64_t cut(int64_t value, int shift) {
  const int64_t magnitude = std::abs(value);
  const int64_t moved = shift >= 0 ? magnitude << shift : magnitude >> std::min(-shift, 63);
  return value < 0 ? -moved : moved;
}

const Format& truncated_to(BlockRounding rounding) {
  switch (rounding) {
    case BlockRounding::truncate_fp32:
      return kFp32;
    case BlockRounding::truncate_e8m13:
      return kE8m13;
    case BlockRounding::near_even_fp16:
      break;
  }
  throw Error("this rounding of a block does not truncate");
}

// The code of sum 2^scale. The sum has at most 50 bits, so fp64 represents it exactly.
uint32_t round_out(BlockRounding rounding, int64_t sum, int scale) {
  if (sum == 0) return 0;  // also an exact cancellation: +0
  const double exact = std::ldexp(static_cast<double>(sum), scale);
  if (rounding == BlockRounding::near_even_fp16) {
    const auto code = static_cast<uint32_t>(encode(DType::f16, exact));
    return code == 0x8000 ? 0 : code;  // a negative sum that rounds to zero gives +0 as well
  }
  const double magnitude = std::fabs(exact);
  if (magnitude >= 0x1p128) return sum < 0 ? 0xFF800000u : 0x7F800000u;
  const Format& format = truncated_to(rounding);
  if (magnitude >= 0x1p-126) {
    // Truncating the significand in fp64 truncates the value toward zero; the conversion is then exact.
    const uint64_t lost = (uint64_t{1} << (52 - format.fraction_bits)) - 1;
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(std::bit_cast<uint64_t>(exact) & ~lost)));
  }
  const double cut_off = round_to(format, exact, Rounding::toward_zero);
  return cut_off == 0 ? 0 : std::bit_cast<uint32_t>(static_cast<float>(cut_off));
}

}  // namespace

uint32_t sum(const BlockSum& block, std::span<const Part> parts) {
  int largest = INT_MIN;
  for (const Part& part : parts)
    largest = std::max(largest, part.value || part.counts ? part.exponent : block.zero_exponent);
  if (parts.empty() || largest == kNoZeroExponent) return 0;
  int64_t total = 0;
  for (const Part& part : parts) {
    if (part.value == 0) continue;  // its exponent did not count, and may be far above the largest
    total += cut(part.value, block.kept_fraction_bits - part.fraction_bits + part.exponent - largest);
  }
  return round_out(block.rounding, total, largest - block.kept_fraction_bits);
}

unsigned special_of(const Term& a, const Term& b) {
  if (!a.special && !b.special) return kFinite;
  const auto zero = [](const Term& t) { return !t.special && t.significand == 0; };
  const auto negative = [](const Term& t) { return t.special ? t.special == kNegativeInfinity : t.significand < 0; };
  if (((a.special | b.special) & kNotANumber) || zero(a) || zero(b)) return kNotANumber;
  return negative(a) != negative(b) ? kNegativeInfinity : kPositiveInfinity;
}

uint32_t special_code(BlockRounding rounding, unsigned seen) {
  const bool half = rounding == BlockRounding::near_even_fp16;
  if ((seen & kNotANumber) || seen == (kPositiveInfinity | kNegativeInfinity)) return half ? kNanF16 : kNanF32;
  const uint32_t infinity = half ? 0x7C00u : 0x7F800000u;
  return seen == kNegativeInfinity ? infinity | (half ? 0x8000u : 0x80000000u) : infinity;
}

}  // namespace halfmark::kernels::block_sum
