#include "kernels/sim/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>

#include "kernels/number/error.h"

namespace halfmark {
namespace {

constexpr std::array kArchitectures{
    Architecture{"hopper", "H100, H200 (sm_90): mma.sync and wgmma"},
};

// Khattak and Mikaitis: arXiv 2512.07004 and its models (north-numerical-computing/MATLAB-tensor-core), which also give
// e_zero. MMA-Sim: arXiv 2511.10909 (microsoft/MMA-Sim), bit-exact against H100.
constexpr std::string_view kHopperSource =
    "arXiv 2512.07004 (L, F, e_zero); arXiv 2511.10909 (L, F); GPU outputs of H100 and H200";

constexpr std::array kCores{
    TensorCore{"hopper", "m16n8k16.f32.f16.f16.f32", DType::f16, DType::f32, 16, 25, -133, BlockRounding::truncate_fp32,
               kHopperSource},
    TensorCore{"hopper", "m16n8k16.f16.f16.f16.f16", DType::f16, DType::f16, 16, 25, -21, BlockRounding::near_even_fp16,
               kHopperSource},
    TensorCore{"hopper", "m16n8k16.f32.bf16.bf16.f32", DType::bf16, DType::f32, 16, 25, -133,
               BlockRounding::truncate_fp32, kHopperSource},
};

constexpr uint32_t kNanF32 = 0x7FFFFFFF, kNanF16 = 0x7FFF;  // the only NaNs these instructions write

int fraction_bits(DType dtype) { return format_of(dtype).fraction_bits; }

// magnitude 2^shift, cut toward zero. A shift to the left stays below 2^63: at most F + 2 significant bits are kept.
inline int64_t cut(int64_t magnitude, int shift) {
  return shift >= 0 ? magnitude << shift : magnitude >> std::min(-shift, 63);
}

// One code of the result type from sum 2^scale.
uint32_t finish(const TensorCore& core, int64_t sum, int scale) {
  if (sum == 0) return 0;                                            // also an exact cancellation: +0
  const double exact = std::ldexp(static_cast<double>(sum), scale);  // the sum has at most 34 bits
  if (core.rounding == BlockRounding::near_even_fp16) {
    const auto code = static_cast<uint32_t>(encode(DType::f16, exact));
    return code == 0x8000 ? 0 : code;  // a negative sum that rounds to zero gives +0 as well
  }
  const double magnitude = std::fabs(exact);
  if (magnitude >= 0x1p128) return sum < 0 ? 0xFF800000u : 0x7F800000u;
  if (magnitude >= 0x1p-126) {
    // Cutting the fp64 significand to 24 bits cuts the value toward zero, and the conversion is then exact.
    const uint64_t bits = std::bit_cast<uint64_t>(exact) & ~((uint64_t{1} << 29) - 1);
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  }
  const auto code = static_cast<uint32_t>(encode(DType::f32, exact, Rounding::toward_zero));
  return code == 0x80000000u ? 0 : code;
}

// What infinities and NaNs among the terms of a block decide; true when they do.
bool decide_specials(const TensorCore& core, const Term* a, const Term* b, size_t count, const Term& c, uint32_t& d) {
  unsigned seen = c.special;
  for (size_t i = 0; i < count; ++i) {
    if (!a[i].special && !b[i].special) continue;
    const bool infinity_times_zero =
        (a[i].special == kFinite && a[i].significand == 0) || (b[i].special == kFinite && b[i].significand == 0);
    if (((a[i].special | b[i].special) & kNotANumber) || infinity_times_zero) {
      seen |= kNotANumber;
      continue;
    }
    const auto negative = [](const Term& t) {
      return t.special == kFinite ? t.significand < 0 : t.special == kNegativeInfinity;
    };
    seen |= negative(a[i]) != negative(b[i]) ? kNegativeInfinity : kPositiveInfinity;
  }
  if (!seen) return false;
  const bool half = core.result == DType::f16;
  if ((seen & kNotANumber) || seen == (kPositiveInfinity | kNegativeInfinity))
    d = half ? kNanF16 : kNanF32;
  else
    d = (half ? 0x7C00u : 0x7F800000u) | (seen == kNegativeInfinity ? (half ? 0x8000u : 0x80000000u) : 0u);
  return true;
}

uint32_t block(const TensorCore& core, const Term* a, const Term* b, size_t count, uint32_t c_code, bool any_special,
               int product_shift, int addend_shift) {
  const Term c = take_apart(core.result, c_code);
  if (any_special || c.special)
    if (uint32_t d; decide_specials(core, a, b, count, c, d)) return d;

  // The exponent of a product is the sum of its factors', not renormalised; a zero counts as e_zero, whatever it is
  // multiplied by.
  int largest = c.significand ? c.exponent : core.zero_exponent;
  if (count < static_cast<size_t>(core.products)) largest = std::max(largest, core.zero_exponent);
  std::array<int64_t, 32> product;
  std::array<int, 32> exponent;
  for (size_t i = 0; i < count; ++i) {
    product[i] = int64_t{a[i].significand} * b[i].significand;
    exponent[i] = product[i] ? a[i].exponent + b[i].exponent : core.zero_exponent;
    largest = std::max(largest, exponent[i]);
  }
  const auto aligned = [largest](int64_t significand, int term_exponent, int shift) {
    const int64_t magnitude = cut(std::abs(significand), shift + term_exponent - largest);
    return significand < 0 ? -magnitude : magnitude;
  };
  int64_t sum = aligned(c.significand, c.exponent, addend_shift);
  for (size_t i = 0; i < count; ++i) sum += aligned(product[i], exponent[i], product_shift);
  return finish(core, sum, largest - core.kept_fraction_bits);
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }
std::span<const TensorCore> tensor_cores() { return kCores; }

const TensorCore* tensor_core(std::string_view architecture, DType operand, DType result) {
  for (const TensorCore& core : kCores)
    if (core.architecture == architecture && core.operand == operand && core.result == result) return &core;
  return nullptr;
}

Term take_apart(DType dtype, uint64_t code) {
  const Format& format = format_of(dtype);
  HM_CHECK(format.specials == Specials::ieee && format.fraction_bits <= 23,
           "dtype " + std::string(name_of(dtype)) + " is no operand of a tensor core that is modelled");
  const uint64_t fraction = code & ((uint64_t{1} << format.fraction_bits) - 1);
  const int field = static_cast<int>(code >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
  const bool negative = (code >> (format.fraction_bits + format.exponent_bits)) & 1;
  if (field == (1 << format.exponent_bits) - 1) {
    const TermKind kind = fraction ? kNotANumber : negative ? kNegativeInfinity : kPositiveInfinity;
    return {0, 0, kind};
  }
  const auto magnitude = static_cast<int32_t>(fraction | (field ? uint64_t{1} << format.fraction_bits : 0));
  return {negative ? -magnitude : magnitude, static_cast<int16_t>(std::max(field, 1) - format.bias()), kFinite};
}

std::vector<Term> take_apart(DType dtype, const void* codes, size_t count) {
  HM_CHECK(size_of(dtype) == 2, "operands of two bytes only");
  std::vector<Term> terms(count);
  for (size_t i = 0; i < count; ++i) terms[i] = take_apart(dtype, static_cast<const uint16_t*>(codes)[i]);
  return terms;
}

uint32_t dot(const TensorCore& core, const Term* a, const Term* b, size_t k, uint32_t c, bool any_special) {
  const auto products = static_cast<size_t>(core.products);
  const int product_shift = core.kept_fraction_bits - 2 * fraction_bits(core.operand);
  const int addend_shift = core.kept_fraction_bits - fraction_bits(core.result);
  for (size_t done = 0; done < k; done += products)
    c = block(core, a + done, b + done, std::min(products, k - done), c, any_special, product_shift, addend_shift);
  return c;
}

uint32_t dot(const TensorCore& core, std::span<const uint16_t> a, std::span<const uint16_t> b, uint32_t c) {
  HM_CHECK(a.size() == b.size(),
           "a dot product of " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " terms");
  return dot(core, take_apart(core.operand, a.data(), a.size()).data(),
             take_apart(core.operand, b.data(), b.size()).data(), a.size(), c);
}

}  // namespace halfmark
