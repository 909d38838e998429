// The classes of inputs that test codes and block scales; see tensor_core_inputs_testing.h.
#pragma once

#include <cstdint>

#include "kernels/sim/tensor_core_draw_testing.h"

namespace halfmark::kernels::exact::draws {

// Every code with equal probability. Half of the rows have no
// infinities and NaNs, which would otherwise decide most rows.
inline void uniform_codes(Draw& d) {
  const bool finite = d.dice.coin();
  const auto code = [&](Type type) {
    for (;;) {
      const uint64_t bits = d.dice.bits() & (sign_bit(code_of(type)) * 2 - 1);
      if (!finite || operand(type, bits, Mistake::none).kind == Kind::finite) return bits;
    }
  };
  for (uint64_t& a : d.row.a) a = code(d.m.a);
  for (uint64_t& b : d.row.b) b = code(d.m.b);
  d.row.c = code(d.m.c);
  for (auto* scales : {&d.row.scale_a, &d.row.scale_b})
    for (uint8_t& scale : *scales) {
      scale = static_cast<uint8_t>(d.dice.bits());
      if (finite && scale_of(d.m.scale, scale, Mistake::none).kind == Kind::nan) scale = 0x40;
    }
}

inline void scale_codes(Draw& d) {
  uniform_codes(d);
  d.addend(d.dice.between(-12, 20));
  for (auto* scales : {&d.row.scale_a, &d.row.scale_b})
    for (uint8_t& scale : *scales) {
      const auto code = static_cast<uint8_t>(d.dice.bits());
      if (d.m.scale == Type::e8m0) {
        scale = static_cast<uint8_t>(d.dice.one_in(4) ? 1 + code % 3 : 120 + code % 16);
        if (d.dice.one_in(4)) scale = static_cast<uint8_t>(d.dice.one_in(8) ? 0xFF : code % 2 ? 0xFE : 0);
      } else {
        scale = static_cast<uint8_t>(d.dice.coin() ? code % 16 : code);  // subnormal ones and the first normal ones
        if (d.dice.coin()) scale |= 0x80;
        if ((scale & 0x7F) == 0x7F && !d.dice.one_in(16)) scale ^= 0x40;
      }
    }
  // c near the sum.
  if (d.dice.coin()) d.addend(d.scale_exponent(d.dice.between(0, d.k() - 1)) + d.dice.between(-30, 12));
}

inline void group_codes(Draw& d) {
  for (uint64_t& a : d.row.a) a = d.dice.bits() & 15;
  for (uint64_t& b : d.row.b) b = d.dice.bits() & 15;
}

inline int group_exponent(Draw& d) {
  return d.m.scale == Type::e8m0 ? d.dice.between(-150, 110) : d.dice.between(-12, 16);
}

// Groups 35 binary places apart with sums of a few units, which are at the last kept bit.
inline void groups_around_the_cut(Draw& d) {
  group_codes(d);
  const int e = group_exponent(d), small = e - d.m.kept;
  for (size_t i = 0; i < d.row.scale_a.size(); ++i)
    d.set_scales(i, d.dice.one_in(3) ? e : small + d.dice.between(-12, 4));
  if (d.dice.coin()) d.set_scales(0, e);
  // A large group that cancels does not affect the rest.
  for (int group = 0; group < d.k(); group += 16)
    if (d.scale_exponent(group) > small + 8 && d.dice.coin())
      for (int i = group; i < group + 16; i += 2) d.opposite(i + 1, i);
  d.addend(d.dice.coin() ? e + d.dice.between(-2, 2) : small + d.dice.between(-4, 12), d.dice.coin(), d.digits());
  if (d.m.scale == Type::e4m3 && d.dice.coin())
    d.addend(e + d.m.kept + d.dice.between(-10, 6));  // scales have a smaller range
}

// Groups of zeros, groups that cancel and groups of scale zero, together with groups or a c far below.
inline void groups_of_zeros(Draw& d) {
  group_codes(d);
  const int e = group_exponent(d), low = e - d.m.kept - d.dice.between(-24, 4);
  for (size_t i = 0; i < d.row.scale_a.size(); ++i) d.set_scales(i, d.dice.coin() ? e : low);
  for (int group = 0; group < d.k(); group += 16) {
    if (d.scale_exponent(group) < e - 3) {
      if (d.dice.coin()) continue;
      for (int i = group; i < group + 16; ++i) d.row.a[static_cast<size_t>(i)] &= 8;
      continue;
    }
    const int how = d.dice.between(0, 5);
    for (int i = group; i < group + 16; ++i)
      if (how <= 2)
        d.row.a[static_cast<size_t>(i)] &= 8;  // +0 or -0
      else if (how <= 4 && i % 2)
        d.opposite(i, i - 1);
    const auto at = static_cast<size_t>(group / d.m.scale_block);
    if (d.m.scale == Type::e4m3 && d.dice.one_in(4)) (d.dice.coin() ? d.row.scale_a : d.row.scale_b)[at] &= 0x80;
    if (d.dice.one_in(60)) d.row.scale_a[at] = d.m.scale == Type::e8m0 ? 0xFF : 0x7F;
  }
  d.addend(low + d.dice.between(-3, 12));
}

// Sums of groups of similar size, as in quantised data.
inline void groups_together(Draw& d) {
  group_codes(d);
  const int e = group_exponent(d);
  for (size_t i = 0; i < d.row.scale_a.size(); ++i) d.set_scales(i, e - d.dice.between(0, 6));
  d.addend(e + d.dice.between(-24, 12));
}

// Scales so small that a sum is below the result's smallest number, if such scales exist.
inline void groups_that_underflow(Draw& d) {
  group_codes(d);
  for (size_t i = 0; i < d.row.scale_a.size(); ++i) d.set_scales(i, d.result_lowest() - d.dice.between(0, 14));
  for (int i = 0; i < d.k(); ++i)
    if (i / 16 % 4 != 1 && d.dice.one_in(3)) d.row.a[static_cast<size_t>(i)] &= 8;
  d.zero_addend();
}

}  // namespace halfmark::kernels::exact::draws
