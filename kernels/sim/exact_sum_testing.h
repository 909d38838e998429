// Numbers as codes, their exact sums as long integers, and one rounding: the basis of the exact model
// (exact_model_testing.h). Uses nothing from kernels/number.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::kernels::exact {

enum class Type : uint8_t { fp64, fp32, tf32, bf16, fp16, e5m2, e4m3, e2m1, e8m0 };

struct Code {  // how a code is read: bias and field widths as in the formats' definitions
  Type type;
  std::string_view name;
  int exponent_bits, fraction_bits, bias;
  enum { ieee, nan_is_all_ones, no_specials } specials = ieee;
};
inline constexpr std::array<Code, 8> kCodes{{
    {Type::fp64, "fp64", 11, 52, 1023},
    {Type::fp32, "fp32", 8, 23, 127},
    {Type::tf32, "tf32", 8, 23, 127},  // a 32-bit register; the instruction truncates it
    {Type::bf16, "bf16", 8, 7, 127},
    {Type::fp16, "fp16", 5, 10, 15},
    {Type::e5m2, "e5m2", 5, 2, 15},
    {Type::e4m3, "e4m3", 4, 3, 7, Code::nan_is_all_ones},
    {Type::e2m1, "e2m1", 2, 1, 1, Code::no_specials},
}};
inline constexpr const Code& code_of(Type type) { return kCodes[static_cast<size_t>(type)]; }
inline constexpr std::string_view name_of(Type type) { return type == Type::e8m0 ? "e8m0" : code_of(type).name; }

enum class Kind : uint8_t { finite, infinite, nan };
struct Value {  // (-1)^negative significand 2^unit
  Kind kind = Kind::finite;
  bool negative = false, subnormal = false;
  uint64_t significand = 0;  // of a NaN: its payload
  int exponent = 0;          // of the leading bit of a normal number; below the smallest normal number, that one's
  int unit = 0;
  int fraction_bits = 0;
};

inline Value read(const Code& type, uint64_t code) {
  const int m = type.fraction_bits;
  const uint64_t fraction = code & ((uint64_t{1} << m) - 1), ones = (uint64_t{1} << type.exponent_bits) - 1;
  const uint64_t field = code >> m & ones;
  Value value;
  value.negative = code >> (m + type.exponent_bits) & 1;
  value.fraction_bits = m;
  value.significand = fraction;
  if (field == ones && type.specials == Code::ieee) {
    value.kind = fraction ? Kind::nan : Kind::infinite;
    return value;
  }
  if (field == ones && type.specials == Code::nan_is_all_ones && fraction + 1 == uint64_t{1} << m) {
    value.kind = Kind::nan;
    return value;
  }
  value.subnormal = field == 0 && fraction != 0;
  if (field) value.significand |= uint64_t{1} << m;
  value.exponent = (field ? static_cast<int>(field) : 1) - type.bias;
  value.unit = value.exponent - m;
  return value;
}

inline bool is_zero(const Value& v) { return v.kind == Kind::finite && v.significand == 0; }

// A non-negative multiple of 2^lowest.
template <int lowest, size_t limbs>
class Wide {
 public:
  void add(uint64_t magnitude, int unit) {
    if (!magnitude) return;
    HM_CHECK(unit >= lowest && unit < lowest + static_cast<int>(limbs - 2) * 64, "outside the exact model's range");
    const auto at = static_cast<size_t>(unit - lowest), shift = at % 64;
    add_at(at / 64, magnitude << shift);
    if (shift) add_at(at / 64 + 1, magnitude >> (64 - shift));
  }
  // Sets this to the magnitude of the difference; true if the difference was negative.
  bool subtract(const Wide& other) {
    const bool negative = less(*this, other);
    const Wide &more = negative ? other : *this, &rest = negative ? *this : other;
    std::array<uint64_t, limbs> result;
    uint64_t borrow = 0;
    for (size_t i = 0; i < limbs; ++i) {
      const uint64_t without = more.limb_[i] - rest.limb_[i];
      result[i] = without - borrow;
      borrow = more.limb_[i] < rest.limb_[i] || without < borrow;
    }
    limb_ = result;
    return negative;
  }
  bool zero() const { return limb_ == std::array<uint64_t, limbs>{}; }
  int top() const {  // exponent of the leading bit; not for zero
    size_t i = limbs - 1;
    while (!limb_[i]) --i;
    return lowest + static_cast<int>(i) * 64 + 63 - std::countl_zero(limb_[i]);
  }
  bool bit(int exponent) const {
    const auto at = static_cast<size_t>(exponent - lowest);
    return exponent >= lowest && limb_[at / 64] >> at % 64 & 1;
  }
  bool any_below(int exponent) const {
    if (exponent <= lowest) return false;
    const auto at = static_cast<size_t>(exponent - lowest);
    for (size_t i = 0; i < at / 64; ++i)
      if (limb_[i]) return true;
    return limb_[at / 64] & ((uint64_t{1} << at % 64) - 1);
  }

 private:
  void add_at(size_t i, uint64_t part) {
    limb_[i] += part;
    for (bool carry = limb_[i] < part; carry;) carry = ++limb_[++i] == 0;
  }
  static bool less(const Wide& x, const Wide& y) {
    for (size_t i = limbs; i-- > 0;)
      if (x.limb_[i] != y.limb_[i]) return x.limb_[i] < y.limb_[i];
    return false;
  }
  std::array<uint64_t, limbs> limb_{};
};

// Products of scaled e5m2 range from 2^-286 to 2^286; the unit of an alignment is 40 below a largest exponent of -254.
using Sum = Wide<-384, 14>;
// Products of fp64 range from 2^-2148 to 2^2048.
using LongSum = Wide<-2176, 68>;

struct Grid {  // numbers of `precision` bits, multiples of 2^lowest, written as codes of `type`
  int precision, lowest;
  Type type;
};
inline constexpr Grid kFp32Grid{24, -149, Type::fp32}, kE8m13Grid{14, -139, Type::fp32}, kFp16Grid{11, -24, Type::fp16},
    kFp64Grid{53, -1074, Type::fp64};

inline uint64_t sign_bit(const Code& type) { return uint64_t{1} << (type.exponent_bits + type.fraction_bits); }
inline uint64_t infinity_code(const Code& type) {
  return ((uint64_t{1} << type.exponent_bits) - 1) << type.fraction_bits;
}

// significand 2^unit as a code, which must represent it exactly; infinity if it is too large.
inline uint64_t written(const Code& type, uint64_t significand, int unit) {
  if (!significand) return 0;
  const int m = type.fraction_bits, top = unit + 63 - std::countl_zero(significand), smallest = 1 - type.bias;
  if (top > type.bias) return infinity_code(type);
  const int shift = unit - (std::max(top, smallest) - m);
  const uint64_t fraction = shift >= 0 ? significand << shift : significand >> -shift;
  HM_CHECK((shift >= 0 ? fraction >> shift : fraction << -shift) == significand, "the exact model lost a bit");
  if (top < smallest) return fraction;
  return (static_cast<uint64_t>(top + type.bias) << m) | (fraction & ((uint64_t{1} << m) - 1));
}

// One rounding of a non-zero sum, without its sign.
template <class AnySum>
uint64_t rounded(const AnySum& sum, const Grid& grid, bool to_nearest) {
  const int top = sum.top(), unit = std::max(top - grid.precision + 1, grid.lowest);
  uint64_t significand = 0;
  for (int e = top; e >= unit; --e) significand = significand << 1 | static_cast<uint64_t>(sum.bit(e));
  if (to_nearest && sum.bit(unit - 1) && (sum.any_below(unit - 1) || (significand & 1))) ++significand;
  return written(code_of(grid.type), significand, unit);
}

struct Term {  // of a fused sum
  bool negative = false;
  uint64_t magnitude = 0;  // times 2^unit
  int unit = 0;
  int exponent = 0;     // for the alignment
  bool counts = false;  // its exponent, even if the magnitude is zero
};

enum class Output : uint8_t { cut_fp32, cut_e8m13, near_fp16 };
enum class Direction : uint8_t { toward_zero, down, nearest };
inline constexpr int kNoFloor = -1000;

// The fused sum: terms aligned to the largest exponent, truncated there, added and rounded once. The members after
// `output` are mistakes.
struct FusedSum {
  int kept;        // fraction bits below the largest exponent
  int zero_floor;  // a zero among the terms raises the largest exponent to this
  Output output;
  Direction alignment = Direction::toward_zero;
  bool aligned = true, other_direction = false, through_fp32 = false, through_fp16 = false, fp32_precision = false,
       underflow_keeps_sign = false, negative_zero = false;

  Grid grid() const {
    if (output == Output::near_fp16) return kFp16Grid;
    if (output == Output::cut_fp32 || fp32_precision) return kFp32Grid;
    return kE8m13Grid;
  }

  uint64_t of(std::span<const Term> terms) const {
    int top = kNoFloor;
    bool zero = false;
    for (const Term& term : terms) {
      if (term.magnitude || term.counts)
        top = std::max(top, term.exponent);
      else
        zero = true;
    }
    if (zero) top = std::max(top, zero_floor);
    Sum positive, negative;
    for (const Term& term : terms) add(term, top - kept, term.negative ? negative : positive);
    const uint64_t minus = sign_bit(code_of(grid().type));
    const bool below_zero = positive.subtract(negative);
    if (positive.zero()) return negative_zero ? minus : 0;
    if (through_fp32) positive = again(rounded(positive, kFp32Grid, false), Type::fp32);
    if (through_fp16) positive = again(rounded(positive, kFp16Grid, true), Type::fp16);
    const uint64_t code =
        positive.zero() ? 0 : rounded(positive, grid(), (output == Output::near_fp16) != other_direction);
    return code == 0 && !underflow_keeps_sign ? 0 : (below_zero ? minus : 0) | code;
  }

 private:
  void add(const Term& term, int unit, Sum& sum) const {
    const int lost = unit - term.unit;
    if (!aligned || lost <= 0) return sum.add(term.magnitude, term.unit);
    uint64_t magnitude = lost > 63 ? 0 : term.magnitude >> lost;
    const uint64_t rest = lost > 63 ? term.magnitude : term.magnitude & ((uint64_t{1} << lost) - 1);
    if (alignment == Direction::down && term.negative && rest) ++magnitude;
    if (alignment == Direction::nearest && lost < 64 && rest >> (lost - 1)) ++magnitude;
    sum.add(magnitude, unit);
  }
  static Sum again(uint64_t code, Type type) {
    Sum sum;
    Value value = read(code_of(type), code);
    if (value.kind == Kind::infinite) value.significand = 1, value.unit = 256;
    sum.add(value.significand, value.unit);
    return sum;
  }
};

// a b + c with the one rounding of IEEE 754, to nearest even; any NaN as 7FF8000000000000.
inline uint64_t fused_multiply_add(const Value& a, const Value& b, const Value& c) {
  const Code& fp64 = code_of(Type::fp64);
  const bool negative = a.negative != b.negative, infinite = a.kind == Kind::infinite || b.kind == Kind::infinite;
  const uint64_t minus = sign_bit(fp64), infinity = infinity_code(fp64), nan = 0x7FF8000000000000;
  if (a.kind == Kind::nan || b.kind == Kind::nan || c.kind == Kind::nan) return nan;
  if (infinite && (is_zero(a) || is_zero(b))) return nan;
  if (infinite && c.kind == Kind::infinite && c.negative != negative) return nan;
  if (infinite) return infinity | (negative ? minus : 0);
  if (c.kind == Kind::infinite) return infinity | (c.negative ? minus : 0);
  LongSum sum, other;
  const uint64_t low = (uint64_t{1} << 27) - 1;
  for (const auto& [x, x_unit] : {std::pair{a.significand & low, 0}, std::pair{a.significand >> 27, 27}})
    for (const auto& [y, y_unit] : {std::pair{b.significand & low, 0}, std::pair{b.significand >> 27, 27}})
      sum.add(x * y, a.unit + b.unit + x_unit + y_unit);
  const bool no_product = sum.zero();
  (c.negative == negative ? sum : other).add(c.significand, c.unit);
  const bool turned = sum.subtract(other);
  if (sum.zero()) return no_product && is_zero(c) && negative && c.negative ? minus : 0;
  return rounded(sum, kFp64Grid, true) | (negative != turned ? minus : 0);
}

}  // namespace halfmark::kernels::exact
