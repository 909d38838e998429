// Inputs that distinguish models of tensor cores. Numbers from a normal distribution do not: models differ at the last
// kept bit, at ties, in cancellation, among subnormals, zeros and specials. Each class aims at one of these for the
// formats, block, kept bits and K of a machine of the exact model.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/sim/tensor_core_scaled_inputs_testing.h"

namespace halfmark::kernels::exact {

struct InputClass {
  std::string_view name;
  bool (*fits)(const Machine& machine);
  void (*draw)(Draw& draw);
};

namespace draws {

inline bool any(const Machine&) { return true; }
inline bool products(const Machine& m) { return m.way != Way::groups; }
inline bool fused_products(const Machine& m) { return m.way == Way::blocks || m.way == Way::interleaved; }
inline bool groups(const Machine& m) { return m.way == Way::groups; }
inline bool scaled(const Machine& m) { return m.scale_block != 0; }
inline bool tf32(const Machine& m) { return m.a == Type::tf32; }

// Anywhere in the range of exponents, and close enough together to interact.
inline void whole_range(Draw& d) {
  const int e = d.base();
  d.fill(0, e - d.m.kept - 4, e);
  d.addend(d.dice.between(e - d.m.kept - 4, e + 2));
}

// A few large terms, the others at the last kept bit.
inline void around_the_cut(Draw& d) {
  const int e = d.base(d.m.kept), small = e - d.m.kept;
  d.fill(0, small - 4, small + 2);
  for (int large = d.dice.between(1, 2); large > 0; --large) d.product(d.dice.between(0, d.k() - 1), e);
  d.addend(d.dice.coin() ? e : small + d.dice.between(-3, 3));
}

// The same with every significand all ones, so that any truncation shows.
inline void ones_around_the_cut(Draw& d) {
  const int e = d.base(d.m.kept), small = e - d.m.kept;
  for (int i = 0; i < d.k(); ++i)
    d.product(i, d.dice.between(small - 3, small + 8), d.dice.coin(), Digits::ones, Digits::ones);
  d.product(0, e, d.dice.coin(), Digits::ones, d.digits());
  d.addend(d.dice.coin() ? e : d.dice.between(small, small + 8), d.dice.coin(), Digits::ones);
  d.shuffle_blocks();
}

// Pairs that cancel, exactly or up to one bit; the remainder is small.
inline void cancelling(Draw& d) {
  const int e = d.base(d.m.kept);
  d.fill(0, e - d.m.kept - 3, e - d.m.kept / 2);
  for (int pair = 0; pair + 1 < d.k(); pair += 2) {
    if (d.dice.one_in(3)) continue;
    d.product(pair, e - d.dice.between(0, 3));
    d.opposite(pair + 1, pair);
    if (d.dice.one_in(3)) d.row.a[static_cast<size_t>(pair)] ^= d.m.a == Type::tf32 ? 0x2000 : 1;
  }
  d.addend(e - d.dice.between(-1, d.m.kept + 2));
  d.shuffle_blocks();
}

// One pair cancels in each block and all others are at the last kept bits, which alone form the result.
inline void cancelling_high(Draw& d) {
  const int e = d.base(d.m.kept), small = e - d.m.kept;
  d.fill(0, small - 2, small + 3);
  for (int begin = 0; begin + 1 < d.k(); begin += std::max(2, d.block())) {
    d.product(begin, e);
    d.opposite(begin + 1, begin);
  }
  if (d.dice.coin())
    d.zero_addend();
  else
    d.addend(d.dice.between(small - 2, small + 3));
  d.shuffle_blocks();
}

// c cancels a product exactly, if possible.
inline void addend_cancels(Draw& d) {
  const int e = d.base(d.m.kept), small = e - d.m.kept;
  d.fill(0, small - 2, small + 4);
  const bool negative = d.dice.coin();
  d.product(0, e, negative, Digits::one, Digits::one);
  d.addend(e, !negative, d.dice.one_in(3) ? d.digits() : Digits::one);
  d.shuffle_blocks();
}

// Partners that cancel are in different blocks or instructions.
inline void across_blocks(Draw& d) {
  const int e = d.base(d.m.kept), half = d.k() / 2, apart = d.dice.coin() && d.block() < d.k() ? d.block() : half;
  d.fill(0, e - d.m.kept - 2, e - d.m.kept + 4);
  for (int i = 0; i + apart < d.k(); ++i) {
    if (!d.dice.one_in(3)) continue;
    d.product(i, e - d.dice.between(0, 1));
    d.opposite(i + apart, i);
  }
  d.addend(e - d.dice.between(0, d.m.kept + 2));
}

// On a tie of the result, or one last kept bit beside it.
inline void ties(Draw& d) {
  const int bits = d.result_bits(), e = d.base(bits), half = e - bits, last = e - d.m.kept;
  for (int i = 0; i < d.k(); ++i)
    if (d.dice.one_in(4))
      d.product(i, d.dice.between(last - 1, last + 1), d.dice.coin(), Digits::one, Digits::one);
    else
      d.zero_product(i);
  const bool negative = d.dice.coin();
  d.product(0, e, negative, d.digits(), Digits::one);
  d.product(1, half, negative != d.dice.one_in(4), Digits::one, Digits::one);
  if (d.dice.coin()) d.product(2, half + 1, negative, Digits::one, Digits::one);  // one more unit: odd becomes even
  if (d.dice.coin())
    d.zero_addend();
  else
    d.addend(d.dice.coin() ? half : last, d.dice.coin(), Digits::one);
  d.shuffle_blocks();
}

// A tie of fp16 that only bits below fp32's last bit decide. Sums that carry are longer than the kept bits.
inline void double_rounding(Draw& d) {
  const int large = d.dice.between(1, std::min(d.block(), 6) - 2);
  const int e = d.m.d == Type::fp16 ? d.dice.between(-9, 12) : d.base(d.m.kept);
  int carry = 1;  // of `large` products 2.25 2^e
  while (4 << (carry + 1) <= 9 * large) ++carry;
  for (int i = 0; i < d.k(); ++i) d.zero_product(i);
  const bool negative = d.dice.coin();
  for (int i = 0; i < large; ++i) {
    d.product(i, e, negative, Digits::one, Digits::one);
    d.row.a[static_cast<size_t>(i)] |= sign_bit(code_of(d.m.a)) >> (code_of(d.m.a).exponent_bits + 1);
    d.row.b[static_cast<size_t>(i)] |= sign_bit(code_of(d.m.b)) >> (code_of(d.m.b).exponent_bits + 1);
  }
  const int tie = e + carry - 11, last = e - d.m.kept + d.dice.between(0, 1);
  const bool addend = d.dice.coin();
  if (addend)
    d.addend(tie, negative, Digits::one);
  else
    d.zero_addend();
  d.product(large, addend ? last : tie, addend ? d.dice.coin() : negative, Digits::one, Digits::one);
  if (!addend && large + 1 < d.block()) d.product(large + 1, last, d.dice.coin(), Digits::one, Digits::one);
}

inline void subnormals(Draw& d) {
  const auto small = [&](Type type) {
    const int low = Draw::lowest(type), width = Draw::significant(type);
    return d.number(type, d.dice.between(low, low + width + (d.dice.one_in(4) ? 3 : 0)), d.dice.coin(), d.digits());
  };
  const int which = d.dice.between(0, 2);
  for (int i = 0; i < d.k(); ++i) {
    const auto at = static_cast<size_t>(i);
    d.product(i, d.base());
    if (which != 0 || d.dice.one_in(4)) d.row.a[at] = small(d.m.a);
    if (which != 1 || d.dice.one_in(4)) d.row.b[at] = small(d.m.b);
    if (which == 2 || d.dice.coin()) continue;
    // Next to it a number of medium size, so that the products interact.
    (which ? d.row.b : d.row.a)[at] = d.number(which ? d.m.b : d.m.a, d.dice.between(-3, 3), d.dice.coin(), d.digits());
  }
  if (d.dice.one_in(3))
    d.zero_addend();
  else if (d.dice.coin())
    d.row.c = small(d.m.c);
  else
    d.addend(d.lowest_product() + d.dice.between(0, d.m.kept));
}

// The largest product, and its opposite, have a subnormal factor; the rest is at the last kept bits.
inline void subnormals_cancelling(Draw& d) {
  const bool left = d.dice.coin();
  const Type small = left ? d.m.a : d.m.b, large = left ? d.m.b : d.m.a;
  const int top = Draw::highest(large) - d.dice.between(0, 2), width = Draw::significant(small);
  const int e = 1 - code_of(small).bias + top + d.scale_exponent(0), last = e - d.m.kept;
  for (int i = 0; i < d.k(); ++i)
    if (d.dice.one_in(3))
      d.zero_product(i);
    else
      d.product(i, d.dice.between(last - width - 1, last + 1));
  const uint64_t subnormal =
      d.number(small, Draw::lowest(small) + d.dice.between(0, width - 1), d.dice.coin(), d.digits());
  const uint64_t factor = d.number(large, top, d.dice.coin(), d.digits());
  for (int begin = 0; begin + 1 < d.k(); begin += std::max(2, d.block())) {
    d.row.a[static_cast<size_t>(begin)] = left ? subnormal : factor;
    d.row.b[static_cast<size_t>(begin)] = left ? factor : subnormal;
    d.opposite(begin + 1, begin);
  }
  if (d.dice.coin())
    d.zero_addend();
  else
    d.addend(d.dice.between(last - 2, last + 3));
  d.shuffle_blocks();
}

// At the largest number of the result, and beyond.
inline void overflow(Draw& d) {
  const int top = d.m.d == Type::fp64 ? 1023 : d.m.d == Type::fp16 ? 15 : 127, bits = d.result_bits();
  d.aim(top);
  const int highest = std::min(top, d.highest_product() + d.scale_exponent(0));
  const bool negative = d.dice.coin(), huge = d.dice.one_in(4);
  for (int i = 0; i < d.k(); ++i)
    d.product(i, d.dice.coin() ? top - d.dice.between(0, 5) : top - bits + d.dice.between(-3, 2),
              d.dice.one_in(4) != negative, d.digits(), d.digits());
  if (huge)
    for (int i = 0; i + 1 < d.k(); i += 2) {
      d.product(i, d.dice.between(top, d.highest_product() + d.scale_exponent(i)));
      if (!d.dice.one_in(3)) d.opposite(i + 1, i);
    }
  d.addend(d.dice.coin() ? highest : Draw::highest(d.m.c), d.dice.one_in(4) != negative, Digits::ones);
  if (d.dice.one_in(3)) {  // the largest number, and a bit that rounding may carry
    for (int i = 0; i < d.k(); ++i) d.zero_product(i);
    d.addend(Draw::highest(d.m.c), negative, Digits::ones);
    d.product(0, top - bits + d.dice.between(-2, 1), negative, d.digits(), Digits::one);
  }
}

inline void signed_zeros(Draw& d) {
  for (int i = 0; i < d.k(); ++i)
    if (d.dice.one_in(2 * d.k()))
      d.product(i, d.base());
    else
      d.zero_product(i);
  if (d.dice.coin()) {  // every zero of one sign
    const bool negative = !d.dice.one_in(3);
    for (size_t i = 0; i < d.row.a.size(); ++i) {
      const bool turned =
          ((d.row.a[i] & sign_bit(code_of(d.m.a))) != 0) != ((d.row.b[i] & sign_bit(code_of(d.m.b))) != 0);
      if (turned != negative) d.row.a[i] = Draw::negated(d.m.a, d.row.a[i]);
    }
    d.row.c = negative ? sign_bit(code_of(d.m.c)) : 0;
  } else if (d.dice.coin()) {
    d.zero_addend();
  } else {
    d.addend(d.base());
  }
}

// Only zeros, c and the products: c passes through the adder, whatever it is.
inline void addend_alone(Draw& d) {
  for (int i = 0; i < d.k(); ++i) d.zero_product(i);
  const int low = Draw::lowest(d.m.c);
  d.addend(d.dice.coin() ? d.dice.between(low, low + 40) : d.dice.between(low, Draw::highest(d.m.c)));
}

inline void specials(Draw& d) {
  const int e = d.base();
  d.fill(0, e - 8, e);
  d.addend(e);
  const auto special = [&](Type type) {
    const Code& code = code_of(type);
    const uint64_t sign = d.dice.coin() ? sign_bit(code) : 0, infinity = infinity_code(code);
    if (d.dice.one_in(3) || code.specials == Code::no_specials) return sign;
    if (code.specials == Code::nan_is_all_ones) return sign | (sign_bit(code) - 1);
    if (!d.dice.one_in(3)) return sign | infinity;
    return sign | infinity | (d.dice.bits() & ((uint64_t{1} << code.fraction_bits) - 1));
  };
  for (int count = d.dice.between(1, 3); count > 0; --count) {
    const auto at = static_cast<size_t>(d.dice.between(0, d.k() - 1));
    const int where = d.dice.between(0, 4);
    if (where <= 1) d.row.a[at] = special(d.m.a);
    if (where >= 1 && where <= 2) d.row.b[at] = special(d.m.b);
    if (where == 3) d.row.c = special(d.m.c);
  }
}

// Zeros among terms so small that the exponent of a zero decides what
// is kept, with their sum near a rounding boundary of the result.
inline void zeros_among_tiny(Draw& d) {
  const int floor = d.m.zero_floor > kUnreachable ? d.m.zero_floor : d.m.d == Type::fp16 ? -9 : -133;
  const int lowest = d.result_lowest(), last = floor - d.m.kept, high = last + d.dice.between(-1, 3);
  const bool tie = d.m.d == Type::fp16 && !d.dice.one_in(3);
  const int zeros = d.dice.between(1, 6);
  d.aim(last);
  for (int i = 0; i < d.k(); ++i)
    if (d.dice.one_in(zeros + 1))
      d.product(i, d.dice.between(high - 3, high));
    else
      d.zero_product(i);
  d.zero_product(d.k() - 1);
  const bool negative = d.dice.coin(), above = !tie && d.dice.coin();
  // A tie; just below a rounding boundary of the result; or on it, with something small subtracted.
  const int at = std::min(tie     ? lowest - 1
                          : above ? lowest + d.dice.between(0, 2)
                                  : lowest - d.dice.between(0, 1),
                          floor - 1);
  d.product(0, at, negative, tie || above ? Digits::one : Digits::ones, Digits::one);
  if (!above && d.dice.coin())
    d.product(1, at, negative != d.dice.one_in(3), tie ? Digits::ones : Digits::one, Digits::one);
  else
    d.product(1, high, above ? !negative : d.dice.coin(), Digits::one, Digits::one);
  if (d.dice.one_in(8))
    d.addend(Draw::lowest(d.m.c));
  else
    d.zero_addend();
  d.shuffle_blocks();
}

// Not zero, and too small for the result.
inline void underflow(Draw& d) {
  const int lowest = d.result_lowest(), few = d.dice.coin() ? 2 : 2 * d.k();
  const bool negative = !d.dice.one_in(4);
  d.aim(lowest);
  for (int i = 0; i < d.k(); ++i)
    if (i > 0 && !d.dice.one_in(few))
      d.zero_product(i);
    else
      d.product(i, lowest - d.dice.between(1, 7), negative != d.dice.one_in(6), d.digits(), d.digits());
  if (d.dice.one_in(4))
    d.addend(lowest - d.dice.between(1, 12), negative, d.digits());
  else
    d.zero_addend();
}

// Unmasked registers: the low 13 bits are not zero, and some decide between NaN and infinity.
inline void tf32_registers(Draw& d) {
  const int e = d.base();
  d.fill(0, e - d.m.kept, e);
  d.addend(e - d.dice.between(0, d.m.kept));
  for (auto* side : {&d.row.a, &d.row.b})
    for (uint64_t& code : *side) {
      code |= d.dice.coin() ? 0x1FFF : d.dice.bits() & 0x1FFF;
      if (d.dice.one_in(3 * d.k())) code = (code & 0x80000000) | 0x7F7FE000 | (d.dice.bits() & 0x1FFF);
      if (d.dice.one_in(12 * d.k())) code = (code & 0x80000000) | 0x7F800000 | (d.dice.bits() & 0x1FFF);
    }
}

}  // namespace draws

inline constexpr std::array<InputClass, 24> kInputClasses{{
    {"uniform_codes", draws::any, draws::uniform_codes},
    {"whole_range", draws::products, draws::whole_range},
    {"around_the_cut", draws::products, draws::around_the_cut},
    {"ones_around_the_cut", draws::products, draws::ones_around_the_cut},
    {"cancelling", draws::products, draws::cancelling},
    {"cancelling_high", draws::products, draws::cancelling_high},
    {"addend_cancels", draws::products, draws::addend_cancels},
    {"across_blocks", draws::products, draws::across_blocks},
    {"ties", draws::products, draws::ties},
    {"double_rounding", draws::fused_products, draws::double_rounding},
    {"subnormals", draws::products, draws::subnormals},
    {"subnormals_cancelling", draws::fused_products, draws::subnormals_cancelling},
    {"overflow", draws::any, draws::overflow},
    {"signed_zeros", draws::any, draws::signed_zeros},
    {"addend_alone", draws::any, draws::addend_alone},
    {"specials", draws::any, draws::specials},
    {"zeros_among_tiny", draws::fused_products, draws::zeros_among_tiny},
    {"underflow", draws::products, draws::underflow},
    {"tf32_registers", draws::tf32, draws::tf32_registers},
    {"scale_codes", draws::scaled, draws::scale_codes},
    {"groups_around_the_cut", draws::groups, draws::groups_around_the_cut},
    {"groups_of_zeros", draws::groups, draws::groups_of_zeros},
    {"groups_together", draws::groups, draws::groups_together},
    {"groups_that_underflow", draws::groups, draws::groups_that_underflow},
}};

inline constexpr uint64_t kRowsOfAClass = 120;  // rows per test, for each length of a chain

// Row number `number` of a class, with k products; always the same row.
inline Row row_of(const InputClass& input_class, const Machine& machine, size_t k, uint64_t number) {
  uint64_t seed = 0xCBF29CE484222325;  // FNV-1a of the name
  for (const char letter : input_class.name) seed = (seed ^ static_cast<uint8_t>(letter)) * 0x100000001B3;
  Dice dice(Dice(seed + number).bits() + k);
  Draw draw(machine, k, dice);
  input_class.draw(draw);
  return std::move(draw.row);
}

}  // namespace halfmark::kernels::exact
