// Which rows the vector paths support, and panels in the order in which they are read.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_engine.h"

namespace halfmark::kernels::dot_engine {
namespace {

#if defined(__x86_64__)
#define HM_AVX2 __attribute__((target("avx2")))  // the vector paths have it
#else
#define HM_AVX2
#endif

constexpr std::align_val_t kAlignment{64};  // a cache line and the widest vector
constexpr int8_t kZeroExponent = -128;

Error no_operand(const Format& format) {
  return Error("dot_matrix: no operands of format " + std::string(format.name));
}

double largest_significand(const Format& format) { return 2 - std::ldexp(1, -format.fraction_bits); }

// Exponents of the non-zero numbers of a panel; 16-bit and wider formats with fp32's exponents.
template <class Code>
int least_exponent(const Panel& panel) {
  constexpr int kDrop = 32 - 8 * static_cast<int>(sizeof(Code));
  std::atomic<int32_t> least{255};
  parallel_for(static_cast<int64_t>(panel.vectors), 64, [&](int64_t begin, int64_t end) {
    int32_t low = 255;
    for (int64_t i = begin; i < end; ++i) {
      const Code* codes = static_cast<const Code*>(panel.codes) + static_cast<size_t>(i) * panel.stride;
      for (size_t k = 0; k < panel.depth; ++k) {
        const auto magnitude = static_cast<int32_t>((static_cast<uint32_t>(codes[k]) << kDrop) & 0x7FFFE000u);
        low = std::min(low, magnitude ? std::max(magnitude >> 23, 1) : 255);
      }
    }
    int32_t seen = least;
    while (low < seen && !least.compare_exchange_weak(seen, low)) {
    }
  });
  return least - 127;
}

// The smallest exponent of an operand. fp8 that is unpacked to fp16 has that of fp16.
int least_exponent_of(const Plan& plan, const Format& format) {
  return plan.interleaved && format.bits() == 8 ? kFp16.min_exponent() : format.min_exponent();
}

int least_exponent(const Plan& plan, const Panel& panel) {
  if (panel.format == kTf32) return least_exponent<uint32_t>(panel);
  if (panel.format == kBf16) return least_exponent<uint16_t>(panel);
  return least_exponent_of(plan, panel.format);
}

// The position of the k-th operand of a vector in the order of the blocks.
size_t place_of(const Plan& plan, size_t k) {
  size_t block = k / plan.row_products, t = k % plan.row_products;
  if (plan.interleaved) {  // k mod 4 < 2 first, then the others
    const size_t both = 2 * plan.row_products, in = k % both;
    block = 2 * (k / both) + ((in >> 1) & 1), t = in / 4 * 2 + (in & 1);
  }
  return block * plan.products + t;
}

// Of a format whose codes take a byte.
const std::array<float, 256>& values_of_bytes(const Format& format) {
  struct Values {
    Format format;
    std::array<float, 256> of_code;
  };
  static const std::vector<Values> tables = [] {
    std::vector<Values> all;
    for (const Format& each : formats()) {
      if (each.bits() > 8 || each.is_scale()) continue;
      Values& values = all.emplace_back(Values{each, {}});
      for (size_t code = 0; code < values.of_code.size(); ++code)
        values.of_code[code] = static_cast<float>(decode_format(each, code));
    }
    return all;
  }();
  for (const Values& values : tables)
    if (values.format == format) return values.of_code;
  throw no_operand(format);
}

DType half_of(const Format& format) {
  if (format == kFp16) return DType::f16;
  if (format == kBf16) return DType::bf16;
  throw no_operand(format);
}

// The bits of a result that a block's rounding leaves.
uint32_t result_mask_of(BlockRounding rounding) {
  switch (rounding) {
    case BlockRounding::truncate_fp32:
    case BlockRounding::near_even_fp16:
      return 0xFFFFFFFFu;
    case BlockRounding::truncate_e8m13:
      return 0xFFFFFC00u;
  }
  throw Error("no mask for this rounding of a block");
}

// Compilers vectorise this loop.
HM_AVX2 bool exponents_of(int32_t least, int32_t least_operand, int32_t shift, size_t k, float* values,
                          int8_t* exponents) {
  int32_t hard = 0;
  for (size_t i = 0; i < k; ++i) {
    const auto bits = std::bit_cast<int32_t>(values[i]);
    const int32_t magnitude = bits & 0x7FFFFFFF, field = magnitude >> 23, exponent = std::max(field, least) - 127;
    const int32_t zero = -static_cast<int32_t>(magnitude == 0);
    const int32_t bad = ~zero & -static_cast<int32_t>((exponent < least_operand) | (exponent > kLargestOperand));
    hard |= bad;
    values[i] = std::bit_cast<float>(bits & ~bad);
    exponents[i] = static_cast<int8_t>((zero | bad) ? int32_t{kZeroExponent} : exponent + shift);
  }
  return hard != 0;
}

// The values of k codes in fp32 and their exponents, not normalised. Values that the vector paths do not handle become
// zero; returns whether there were any.
bool widen(const Plan& plan, const Format& format, const unsigned char* codes, size_t k, int least_operand, int shift,
           float* values, int8_t* exponents) {
  if (format == kTf32) {
    for (size_t i = 0; i < k; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, codes + 4 * i, 4);
      values[i] = std::bit_cast<float>(word & 0xFFFFE000u);  // the register's low 13 bits are dropped
    }
  } else if (size_of_operand(format) == 1) {
    const std::array<float, 256>& value = values_of_bytes(format);
    for (size_t i = 0; i < k; ++i) values[i] = value[codes[i]];
  } else {
    convert(half_of(format), codes, DType::f32, values, k);
  }
  return exponents_of(least_exponent_of(plan, format) + 127, least_operand, shift, k, values, exponents);
}

// One group of `lanes` vectors, `line` apart, in the order in which the paths read it.
void write_group(const float* values, const int8_t* exponents, size_t line, size_t l, size_t lanes, bool right,
                 float* out) {
  const size_t terms = kBlocksOfGroup * l, chunk = terms + l;
  std::array<uint32_t, 32> words;
  for (size_t lane = 0; lane < lanes; ++lane, values += line, exponents += line) {
    for (size_t t = 0; t < l; ++t) {
      const auto byte = [&](size_t q) { return uint32_t{static_cast<uint8_t>(exponents[q * l + t])} << (8 * q); };
      words[t] = byte(0) | byte(1) | byte(2) | byte(3);
    }
    if (right) {
      for (size_t i = 0; i < terms; ++i) out[i * lanes + lane] = values[i];
      for (size_t t = 0; t < l; ++t) out[(terms + t) * lanes + lane] = std::bit_cast<float>(words[t]);
    } else {
      std::copy_n(values, terms, out + lane * chunk);
      std::memcpy(out + lane * chunk + terms, words.data(), 4 * l);
    }
  }
}

}  // namespace

LeastOperands least_operands(const Plan& plan, const Panel& left, const Panel& right) {
  const int a = least_exponent(plan, left), b = least_exponent(plan, right);
  if (a + b >= kLeastExponent) return {a, b};
  const int of_right = std::max(b, std::min(kLeastExponent / 2, kLeastExponent - a));
  return {kLeastExponent - of_right, of_right};
}

std::optional<Plan> plan_for(const TensorCore& core, const Format& left, const Format& right) {
  Plan plan{};
  plan.interleaved = core.summation == Summation::interleaved;
  if (!plan.interleaved && core.summation != Summation::blocks) return {};
  plan.row_products = static_cast<size_t>(plan.interleaved ? core.depth() / 2 : core.block.products);
  plan.result_mask = result_mask_of(core.block.rounding);
  const size_t fewest = plan.result_mask == 0xFFFFFFFFu ? 4 : 2 * kMostUnmasked;
  plan.products = std::max(fewest, std::bit_ceil(plan.row_products));
  if (plan.products > 32) return {};

  plan.kept = core.block.kept_fraction_bits;
  if (plan.kept < 1 || plan.kept > 26) return {};  // 2^(F - floor) is a normal number
  // The sum in two halves: the first 16 products, and the rest with c. Each half must fit in 32 bits.
  const double product = largest_significand(left) * largest_significand(right),
               first = static_cast<double>(std::min<size_t>(plan.row_products, 16)) * product,
               second = static_cast<double>(plan.row_products - std::min<size_t>(plan.row_products, 16)) * product + 2,
               limit = std::ldexp(1, 31 - plan.kept) * (1 - 0x1p-31);
  if (first > limit || second > limit) return {};
  plan.carries = first + second > limit;
  // No row needs these forms (dot_kernel.h).
  if ((plan.carries && plan.products < 16) || (plan.interleaved && plan.products != 16)) return {};

  plan.half = core.block.rounding == BlockRounding::near_even_fp16;
  // e_zero matters if every non-zero term is below it. Rows in which a non-zero c could be below it are refused. In the
  // others c is zero whenever e_zero matters, so e_zero can always be applied.
  const int zero = core.block.zero_exponent;
  if (zero >= (plan.half ? kFp16.min_exponent() : kLeastExponent)) return {};
  plan.floor = std::max(zero, kLeastExponent);
  return plan;
}

void Packed::Free::operator()(float* words) const { ::operator delete(words, kAlignment); }

Packed::Packed(const Plan& plan, const Panel& panel, size_t lanes, bool right, int least_operand)
    : tiles_((panel.vectors + lanes - 1) / lanes), hard_(panel.vectors) {
  const size_t l = plan.products, depth = panel.depth, instruction = plan.row_products * (plan.interleaved ? 2 : 1);
  blocks_ = (depth + instruction - 1) / instruction * (plan.interleaved ? 2 : 1);
  const size_t groups = (blocks_ + kBlocksOfGroup - 1) / kBlocksOfGroup;
  tile_words_ = groups * plan.chunk() * lanes;
  words_.reset(static_cast<float*>(::operator new(std::max<size_t>(tiles_ * tile_words_, 1) * 4, kAlignment)));

  const size_t terms = kBlocksOfGroup * l, places = groups * terms;
  // Spaced by slightly more than a power of two; otherwise the lanes would map to the same cache lines.
  const size_t line = places + 16;
  const bool in_order = !plan.interleaved && plan.row_products == l;
  // The exponents of one side are lowered by one, so that 128 above the sum is the exponent field of fp32.
  const int shift = right ? -1 : 0;
  const size_t size = size_of_operand(panel.format);
  parallel_for(static_cast<int64_t>(tiles_), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(lanes * line), given(in_order ? 0 : depth);
    std::vector<int8_t> exponents(lanes * line), given_exponents(in_order ? 0 : depth);
    for (auto tile = static_cast<size_t>(begin); tile < static_cast<size_t>(end); ++tile) {
      for (size_t lane = 0; lane < lanes; ++lane) {
        const size_t vector = tile * lanes + lane;
        float* value = values.data() + lane * line;
        int8_t* exponent = exponents.data() + lane * line;
        const size_t from = in_order && vector < panel.vectors ? depth : 0;
        std::fill(value + from, value + places, 0.0f);
        std::fill(exponent + from, exponent + places, kZeroExponent);
        if (vector >= panel.vectors) continue;
        const auto* codes = static_cast<const unsigned char*>(panel.codes) + vector * panel.stride * size;
        hard_[vector] = widen(plan, panel.format, codes, depth, least_operand, shift, in_order ? value : given.data(),
                              in_order ? exponent : given_exponents.data());
        for (size_t k = 0; k < given.size(); ++k) {
          const size_t place = place_of(plan, k);
          value[place] = given[k], exponent[place] = given_exponents[k];
        }
      }
      float* out = words_.get() + tile * tile_words_;
      for (size_t g = 0; g < groups; ++g, out += plan.chunk() * lanes)
        write_group(values.data() + g * terms, exponents.data() + g * terms, line, l, lanes, right, out);
    }
  });
}

}  // namespace halfmark::kernels::dot_engine
