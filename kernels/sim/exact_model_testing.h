// A second model of the tensor cores, for tests. It is written only from the published findings and shares no code with
// the first, not even the decoding of numbers. Every sum is an exact integer of many hundred bits. On request it makes
// one of the mistakes that a model could make, so that tests can show that they would detect it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/ops/matrix_instruction.h"
#include "kernels/sim/exact_sum_testing.h"

namespace halfmark::kernels::exact {

enum class Way : uint8_t { blocks, interleaved, groups, fma };
inline constexpr int kUnreachable = -999;  // a bound on exponents that no operand reaches: any value would do

struct Machine {  // a row of exact_machines_testing.h
  std::string_view architecture;
  MatrixInstruction instruction;
  Type a, b, c, d;
  Way way;
  int block;       // products in a fused sum
  int kept;        // fraction bits below the largest exponent
  int zero_floor;  // exponent that a zero term has
  Output output;
  Type scale = Type::e8m0;  // or e4m3, read as ue4m3
  int scale_block = 0;      // 0: no scales
};

enum class Mistake : uint8_t {
  none,
  one_bit_more,  // kept below the largest exponent
  one_bit_less,
  other_rounding_of_output,  // rounded to nearest instead of truncated, and vice versa
  half_the_block,
  twice_the_block,
  alignment_rounds_down,  // two's complement: toward minus infinity
  alignment_to_nearest,
  products_renormalised,  // 1.5 x 1.5 aligned as 2.25
  subnormals_normalised,  // a subnormal operand aligned by its leading bit
  subnormals_flushed,     // operands and addends
  last_block_first,
  addend_afterwards,  // added to the rounded sum of the products
  floor_one_higher,   // exponent of a zero term
  floor_one_lower,
  floor_where_there_is_none,  // -9, the highest of the candidates for fp16 results of fp8
  fp16_through_fp32,          // cut to fp32, then to the nearest fp16
  nan_payload_kept,
  negative_zero_kept,         // of sums of negative zeros
  underflow_keeps_its_sign,   // of negative sums that round to zero
  tf32_rounded,               // to nearest, instead of truncating the low bits
  tf32_nan_stays,             // a NaN whose payload is in the truncated bits
  e8m13_as_fp32,              // all of fp32's fraction bits
  e8m13_addend_passes,        // if all products are zero, c passes unchanged
  not_interleaved,            // the first half of k, then the second
  halves_swapped,             // k mod 4 >= 2 first
  unpacked_keep_exponent,     // e4m3 subnormals are aligned by the exponent of their codes
  addend_in_first_half,       // c enters the first block
  addend_cut,                 // c added to the halves toward zero
  mixed_addend_as_fp16,       // volta: c aligned by fp16's exponents
  mixed_result_through_fp16,  // volta: the sum rounded to fp16 in between
  groups_of_eight,
  zero_group_counts,  // its exponent joins the alignment
  cancelled_group_ignored,
  group_aligned_by_its_size,  // by its leading bit
  scale_sign_counts,          // of ue4m3
  scale_zero_is_zero,         // of ue8m0, where it is 2^-127
  scale_nan_ignored,          // of a group of zeros
  product_rounded,            // fp64: before it is added
};

struct Inputs {
  std::span<const uint64_t> a, b;
  uint64_t c = 0;
  std::span<const uint8_t> scale_a{}, scale_b{};
};

inline Value operand(Type type, uint64_t code, Mistake mistake) {
  if (type == Type::tf32) {
    const bool finite = (code & 0x7F800000) != 0x7F800000, payload = code & 0x7FFFFF;
    if (mistake == Mistake::tf32_rounded && finite) code += 0xFFF + (code >> 13 & 1);
    if (mistake == Mistake::tf32_nan_stays && !finite && payload) code |= 0x400000;
    code &= 0xFFFFE000;
  }
  Value value = read(code_of(type), code);
  if (value.subnormal && mistake == Mistake::subnormals_flushed) value.significand = 0;
  if (value.subnormal && mistake == Mistake::subnormals_normalised)
    value.exponent = value.unit + 63 - std::countl_zero(value.significand);
  return value;
}

// A factor of a product. fp8 that is unpacked to fp16 is subnormal only where fp16 is.
inline Value factor(const Machine& machine, Type type, uint64_t code, Mistake mistake) {
  Value value = operand(type, code, mistake);
  const bool unpacked = machine.way == Way::interleaved && mistake != Mistake::unpacked_keep_exponent &&
                        mistake != Mistake::subnormals_normalised;
  if (unpacked && value.subnormal && value.significand)
    value.exponent = std::max(value.unit + 63 - std::countl_zero(value.significand), 1 - code_of(Type::fp16).bias);
  return value;
}

inline Value scale_of(Type type, uint8_t code, Mistake mistake) {
  Value value;
  if (type == Type::e8m0) {
    value.kind = code == 0xFF ? Kind::nan : Kind::finite;
    value.significand = code == 0 && mistake == Mistake::scale_zero_is_zero ? 0 : 1;
    value.exponent = value.unit = code - 127;
  } else {
    value = read(code_of(Type::e4m3), code);
    if (mistake != Mistake::scale_sign_counts) value.negative = false;
  }
  return value;
}

// What decides before any arithmetic: NaN, infinity times zero,
// or infinities of both signs give NaN; otherwise an infinity.
struct Specials {
  bool nan = false, positive = false, negative = false;
  Value payload{};  // the first NaN, for a mistake

  bool any() const { return nan || positive || negative; }
  void see(const Value& v) {
    if (v.kind == Kind::nan && payload.kind != Kind::nan) payload = v;
    nan = nan || v.kind == Kind::nan;
    if (v.kind == Kind::infinite) (v.negative ? negative : positive) = true;
  }
  void see_product(const Value& x, const Value& y) {
    if (x.kind == Kind::finite && y.kind == Kind::finite) return;
    if (x.kind == Kind::nan || y.kind == Kind::nan) return see(x.kind == Kind::nan ? x : y);
    if (is_zero(x) || is_zero(y))
      nan = true;
    else
      (x.negative != y.negative ? negative : positive) = true;
  }
  uint64_t code(Output output, Mistake mistake) const {
    const Code& type = code_of(output == Output::near_fp16 ? Type::fp16 : Type::fp32);
    const uint64_t infinity = infinity_code(type), sign = sign_bit(type);
    if (!nan && !(positive && negative)) return infinity | (negative ? sign : 0);
    if (mistake != Mistake::nan_payload_kept) return sign - 1;
    const int shift = type.fraction_bits - payload.fraction_bits;
    const uint64_t fraction = shift >= 0 ? payload.significand << shift : payload.significand >> -shift;
    return infinity | uint64_t{1} << (type.fraction_bits - 1) | fraction | (payload.negative ? sign : 0);
  }
};

// One fused sum of the products k of `order` with c.
class Block {
 public:
  Block(const Machine& machine, const Inputs& in, Mistake mistake, Type c_type, uint64_t c_code)
      : machine_(machine), in_(in), mistake_(mistake), c_(operand(c_type, c_code, mistake)), c_code_(c_code) {
    specials_.see(c_);
    terms_.reserve(65);
  }

  uint64_t of_products(std::span<const size_t> order) {
    for (const size_t k : order) {
      const Value x = factor(machine_, machine_.a, in_.a[k], mistake_),
                  y = factor(machine_, machine_.b, in_.b[k], mistake_);
      specials_.see_product(x, y);
      Term term{x.negative != y.negative, x.significand * y.significand, x.unit + y.unit, x.exponent + y.exponent};
      if (mistake_ == Mistake::products_renormalised && term.magnitude && !x.subnormal && !y.subnormal)
        term.exponent = term.unit + 63 - std::countl_zero(term.magnitude);
      if (machine_.scale_block) {
        const size_t at = k / static_cast<size_t>(machine_.scale_block);
        const Value sa = scale_of(machine_.scale, in_.scale_a[at], mistake_),
                    sb = scale_of(machine_.scale, in_.scale_b[at], mistake_);
        specials_.nan = specials_.nan || sa.kind == Kind::nan || sb.kind == Kind::nan;
        term.magnitude *= sa.significand * sb.significand;
        term.unit += sa.unit + sb.unit, term.exponent += sa.exponent + sb.exponent;
      }
      terms_.push_back(term);
    }
    return finish();
  }

  uint64_t of_groups(size_t begin, size_t end) {
    const size_t size = mistake_ == Mistake::groups_of_eight ? 8 : 16;
    for (; begin < end; begin += size) {
      int64_t quarters = 0;
      bool any = false;
      for (size_t k = begin; k < begin + size; ++k) {
        const Value x = operand(machine_.a, in_.a[k], mistake_), y = operand(machine_.b, in_.b[k], mistake_);
        const auto product = static_cast<int64_t>((x.significand * y.significand) << (x.unit + y.unit + 2));
        quarters += x.negative != y.negative ? -product : product;
        any = any || product != 0;
      }
      const size_t at = begin / static_cast<size_t>(machine_.scale_block);
      const Value sa = scale_of(machine_.scale, in_.scale_a[at], mistake_),
                  sb = scale_of(machine_.scale, in_.scale_b[at], mistake_);
      if ((sa.kind == Kind::nan || sb.kind == Kind::nan) && (any || mistake_ != Mistake::scale_nan_ignored))
        specials_.nan = true;
      Term term;
      term.negative = (quarters < 0) != (sa.negative != sb.negative);
      term.magnitude = static_cast<uint64_t>(quarters < 0 ? -quarters : quarters) * sa.significand * sb.significand;
      term.unit = sa.unit + sb.unit - 2, term.exponent = sa.exponent + sb.exponent;
      term.counts = any && sa.significand && sb.significand && mistake_ != Mistake::cancelled_group_ignored;
      if (mistake_ == Mistake::zero_group_counts) term.counts = true;
      if (mistake_ == Mistake::group_aligned_by_its_size && term.magnitude)
        term.exponent = term.unit + 63 - std::countl_zero(term.magnitude);
      terms_.push_back(term);
    }
    return finish();
  }

 private:
  FusedSum adder() const {
    FusedSum sum{machine_.kept, machine_.zero_floor == kUnreachable ? kNoFloor : machine_.zero_floor, machine_.output};
    const bool unknown = machine_.zero_floor == kNoFloor;
    sum.kept += (mistake_ == Mistake::one_bit_more) - (mistake_ == Mistake::one_bit_less);
    if (sum.zero_floor == kNoFloor)
      sum.zero_floor = unknown && mistake_ == Mistake::floor_where_there_is_none ? -9 : kNoFloor;
    else
      sum.zero_floor += (mistake_ == Mistake::floor_one_higher) - (mistake_ == Mistake::floor_one_lower);
    if (mistake_ == Mistake::alignment_rounds_down) sum.alignment = Direction::down;
    if (mistake_ == Mistake::alignment_to_nearest) sum.alignment = Direction::nearest;
    sum.other_direction = mistake_ == Mistake::other_rounding_of_output;
    sum.through_fp32 = mistake_ == Mistake::fp16_through_fp32;
    sum.through_fp16 = mistake_ == Mistake::mixed_result_through_fp16 && machine_.c != machine_.d;
    sum.fp32_precision = mistake_ == Mistake::e8m13_as_fp32;
    sum.underflow_keeps_sign = mistake_ == Mistake::underflow_keeps_its_sign;
    sum.negative_zero = mistake_ == Mistake::negative_zero_kept &&
                        std::ranges::all_of(terms_, [](const Term& t) { return t.negative && !t.magnitude; });
    return sum;
  }

  uint64_t finish() {
    if (specials_.any()) return specials_.code(machine_.output, mistake_);
    const Term c{c_.negative, c_.significand, c_.unit, c_.exponent};
    const bool no_products = std::ranges::all_of(terms_, [](const Term& t) { return !t.magnitude; });
    if (mistake_ == Mistake::e8m13_addend_passes && machine_.output == Output::cut_e8m13 && no_products)
      return is_zero(c_) ? 0 : c_code_;
    if (mistake_ == Mistake::addend_afterwards && machine_.way != Way::interleaved) {
      const Value d = read(code_of(machine_.d), adder().of(terms_));
      if (d.kind == Kind::infinite)
        return infinity_code(code_of(machine_.d)) | (d.negative ? sign_bit(code_of(machine_.d)) : 0);
      FusedSum sum = adder();
      sum.aligned = false;
      const std::array<Term, 2> two{Term{d.negative, d.significand, d.unit, d.exponent}, c};
      return sum.of(two);
    }
    terms_.push_back(c);
    return adder().of(terms_);
  }

  const Machine& machine_;
  const Inputs& in_;
  Mistake mistake_;
  Value c_;
  uint64_t c_code_;
  Specials specials_;
  std::vector<Term> terms_;
};

// Two blocks without c, of the k with k mod 4 < 2 and of the others, and then an IEEE addition of c.
inline uint64_t interleaved(const Machine& machine, const Inputs& in, size_t begin, uint64_t c, Mistake mistake) {
  std::vector<size_t> first, second;
  const auto depth = static_cast<size_t>(depth_of(machine.instruction));
  for (size_t k = 0; k < depth; ++k) {
    const bool early =
        mistake == Mistake::not_interleaved ? k < depth / 2 : (k % 4 < 2) != (mistake == Mistake::halves_swapped);
    (early ? first : second).push_back(begin + k);
  }
  const bool inside = mistake == Mistake::addend_in_first_half;
  const uint64_t half = Block(machine, in, mistake, machine.d, inside ? c : 0).of_products(first);
  const uint64_t sum = Block(machine, in, mistake, machine.d, half).of_products(second);
  if (inside) return sum;
  const Value x = read(code_of(machine.d), sum), y = operand(machine.d, c, mistake);
  Specials specials;
  specials.see(x), specials.see(y);
  if (specials.any()) return specials.code(machine.output, mistake);
  FusedSum ieee{.kept = 0, .zero_floor = kNoFloor, .output = machine.output};
  ieee.aligned = false;
  ieee.other_direction = (machine.output != Output::near_fp16) != (mistake == Mistake::addend_cut);
  ieee.negative_zero = x.negative && y.negative;  // of zeros only
  return ieee.of(std::array<Term, 2>{Term{x.negative, x.significand, x.unit, x.exponent},
                                     Term{y.negative, y.significand, y.unit, y.exponent}});
}

inline uint64_t fma_chain(const Inputs& in, Mistake mistake) {
  uint64_t d = in.c;
  for (size_t i = 0; i < in.a.size(); ++i) {
    const size_t k = mistake == Mistake::last_block_first ? in.a.size() - 1 - i : i;
    Value x = operand(Type::fp64, in.a[k], mistake), y = operand(Type::fp64, in.b[k], mistake);
    if (mistake == Mistake::product_rounded) {
      x = read(code_of(Type::fp64),
               fused_multiply_add(x, y, Value{.negative = x.negative != y.negative, .exponent = -1022, .unit = -1074}));
      y = read(code_of(Type::fp64), 0x3FF0000000000000);  // 1
    }
    d = fused_multiply_add(x, y, operand(Type::fp64, d, mistake));
  }
  return d;
}

// d as the machine computes it, its instructions chained over
// all of k; with `mistake`, as it would be with that mistake.
inline uint64_t dot(const Machine& machine, const Inputs& in, Mistake mistake = Mistake::none) {
  if (machine.way == Way::fma) return fma_chain(in, mistake);
  const size_t k = in.a.size(), depth = static_cast<size_t>(depth_of(machine.instruction));
  HM_CHECK(k && k % depth == 0, "the exact model needs k to be a multiple of the instruction's K");
  auto block = static_cast<size_t>(machine.block);
  if (mistake == Mistake::half_the_block) block /= 2;
  if (mistake == Mistake::twice_the_block) block *= 2;
  if (machine.way == Way::interleaved) block = depth;
  std::vector<size_t> starts;
  for (size_t start = 0; start < k; start += block) starts.push_back(start);
  if (mistake == Mistake::last_block_first) std::ranges::reverse(starts);
  uint64_t d = in.c;
  if (machine.way == Way::interleaved) {
    for (const size_t start : starts) d = interleaved(machine, in, start, d, mistake);
    return d;
  }
  Type c_type = machine.c;
  if (c_type != machine.d && mistake != Mistake::mixed_addend_as_fp16) {  // widened first; a NaN stays one
    const Value c = read(code_of(c_type), d);
    const Code& wide = code_of(machine.d);
    d = c.kind == Kind::finite ? written(wide, c.significand, c.unit) : infinity_code(wide) | (c.kind == Kind::nan);
    if (c.negative) d |= sign_bit(wide);
    c_type = machine.d;
  }
  for (const size_t start : starts) {
    const size_t end = std::min(start + block, k);
    Block one(machine, in, mistake, c_type, d);
    if (machine.way == Way::groups) {
      d = one.of_groups(start, end);
    } else {
      std::vector<size_t> order;
      for (size_t i = start; i < end; ++i) order.push_back(i);
      d = one.of_products(order);
    }
    c_type = machine.d;
  }
  return d;
}

}  // namespace halfmark::kernels::exact
