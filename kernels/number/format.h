// The formats that numbers are computed in, one table row each, and the one routine that rounds to any of them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace halfmark::kernels {

// 2^exponent for exponents from -1022 to 1023. Much faster than ldexp when called for every number.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// Which codes are NaN. Every code that is neither NaN nor infinity is a finite number.
enum class NanCodes : uint8_t {
  none,
  top_exponent,   // the largest exponent field; with fraction 0 it is infinity
  all_ones,       // the largest exponent field with the largest fraction, of either sign
  negative_zero,  // the code that would be -0; zero then has no sign
};

// What the codes of a format mean beyond sign, exponent and fraction. Everything else about a format is derived from
// this and its numbers of bits.
struct Specials {
  NanCodes nan = NanCodes::top_exponent;
  bool scale = false;  // no sign bit, no zero, no subnormal numbers: only powers of two
  int more_bias = 0;   // bias beyond 2^(exponent_bits - 1) - 1

  static const Specials ieee;      // IEEE 754
  static const Specials nan_only;  // OCP E4M3
  static const Specials none;      // OCP FP6 and FP4
  static const Specials e8m0;      // OCP E8M0
  static const Specials fnuz;      // finite numbers and one NaN, unsigned zero
  friend constexpr bool operator==(const Specials&, const Specials&) = default;
};
inline constexpr Specials Specials::ieee{};
inline constexpr Specials Specials::nan_only{.nan = NanCodes::all_ones};
inline constexpr Specials Specials::none{.nan = NanCodes::none};
inline constexpr Specials Specials::e8m0{.nan = NanCodes::all_ones, .scale = true};
inline constexpr Specials Specials::fnuz{.nan = NanCodes::negative_zero, .more_bias = 1};

enum class Rounding : uint8_t { near_even, toward_zero, near_away, stochastic };

// The result when rounding carries a finite number beyond the largest one. toward_zero never
// does that: it gives the largest number under every rule. An infinity stays one if the
// format has infinities and the rule is not `saturate`; otherwise the rule applies to it, too
// (OFP8 1.0: in saturating mode infinities become the largest number, and a NaN stays NaN).
enum class Overflow : uint8_t {
  format_default,  // infinity if the format has one, else NaN if it has that, else the largest number
  infinity,        // in a format without infinity: as format_default; see require_possible()
  nan,             // in a format without NaN: as format_default
  saturate,        // the largest number
};

// What rounding changed, counted over every value that was rounded.
struct RoundEvents {
  uint64_t values = 0;     // all values rounded
  uint64_t inexact = 0;    // changed
  uint64_t overflow = 0;   // finite and too large: became infinite, NaN or the largest number
  uint64_t underflow = 0;  // non-zero and became zero
  uint64_t subnormal = 0;  // became a subnormal number
};

struct Format {
  std::string_view name;
  int exponent_bits;
  int fraction_bits;  // stored bits; the leading bit is not counted
  Specials specials = Specials::ieee;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1 + specials.more_bias; }
  constexpr int min_exponent() const { return (is_scale() ? 0 : 1) - bias(); }  // of the smallest normal number
  constexpr int max_exponent() const { return static_cast<int>(largest_code() >> fraction_bits) - bias(); }
  constexpr int min_subnormal_exponent() const { return min_exponent() - fraction_bits; }
  constexpr int bits() const { return (is_scale() ? 0 : 1) + exponent_bits + fraction_bits; }  // of a code
  constexpr bool has_infinity() const { return specials.nan == NanCodes::top_exponent; }
  constexpr bool has_nan() const { return specials.nan != NanCodes::none; }
  constexpr bool has_negative_zero() const { return !is_scale() && specials.nan != NanCodes::negative_zero; }
  constexpr bool is_scale() const { return specials.scale; }  // no sign, no zero

  // Codes without their sign: codes 0 to largest_code() are the non-negative numbers in increasing order.
  constexpr uint64_t sign_code() const { return is_scale() ? 0 : uint64_t{1} << (exponent_bits + fraction_bits); }
  constexpr uint64_t all_ones_code() const { return (uint64_t{1} << (exponent_bits + fraction_bits)) - 1; }
  constexpr uint64_t infinity_code() const { return all_ones_code() >> fraction_bits << fraction_bits; }
  constexpr uint64_t largest_code() const {
    if (has_infinity()) return infinity_code() - 1;
    return specials.nan == NanCodes::all_ones ? all_ones_code() - 1 : all_ones_code();
  }
  // The quiet NaN; in negative_zero formats the only NaN, whose code has the sign bit set. The largest number if the
  // format has no NaN.
  constexpr uint64_t quiet_nan_code() const {
    if (has_infinity()) return infinity_code() | uint64_t{1} << (fraction_bits - 1);
    return specials.nan == NanCodes::negative_zero ? sign_code() : all_ones_code();
  }
  constexpr bool is_nan_code(uint64_t code) const {
    const uint64_t magnitude = code & all_ones_code();
    switch (specials.nan) {
      case NanCodes::none:
        return false;
      case NanCodes::top_exponent:
        return magnitude > infinity_code();
      case NanCodes::all_ones:
        return magnitude == all_ones_code();
      case NanCodes::negative_zero:
        return magnitude == 0 && (code & sign_code());
    }
    return false;
  }

  constexpr double max_finite() const {
    const uint64_t fraction = largest_code() & ((uint64_t{1} << fraction_bits) - 1);
    return (1 + static_cast<double>(fraction) * power_of_two(-fraction_bits)) * power_of_two(max_exponent());
  }
  // A magnitude with the sign of x, if the format has signs.
  double with_sign_of(double magnitude, double x) const {
    return is_scale() || (magnitude == 0 && !has_negative_zero()) ? magnitude : std::copysign(magnitude, x);
  }
  double unit_roundoff() const;  // 2^-(fraction_bits + 1): the largest relative error of near_even for normal numbers
  // Everything except the name that distinguishes two formats, in one word.
  constexpr int64_t key() const {
    return int64_t{exponent_bits} | int64_t{fraction_bits} << 8 | static_cast<int64_t>(specials.nan) << 16 |
           int64_t{specials.scale} << 24 | int64_t{specials.more_bias} << 32;
  }
  friend constexpr bool operator==(const Format& a, const Format& b) { return a.name == b.name; }
};

// The table. Sources: IEEE 754-2019 (fp64, fp32, fp16); NVIDIA A100 white paper (tf32: 8 exponent bits of fp32 and 10
// fraction bits of fp16); Intel bfloat16 definition rev 1.0; OCP 8-bit floating point specification (OFP8) rev 1.0; OCP
// Microscaling formats (MX) specification v1.0, section 5.3 (e3m2, e2m3, e2m1) and 5.4 (e8m0); B. Noune et al., "8-bit
// numerical formats for deep neural networks", arXiv:2206.02915, 2022 (e5m2fnuz, e4m3fnuz: FP8 of AMD's MI300).
inline constexpr Format kFormats[] = {
    {"fp64", 11, 52},
    {"fp32", 8, 23},
    {"tf32", 8, 10},
    {"fp16", 5, 10},
    {"bf16", 8, 7},
    {"e5m2", 5, 2},
    {"e4m3", 4, 3, Specials::nan_only},
    {"e5m2fnuz", 5, 2, Specials::fnuz},
    {"e4m3fnuz", 4, 3, Specials::fnuz},
    {"e3m2", 3, 2, Specials::none},
    {"e2m3", 2, 3, Specials::none},
    {"e2m1", 2, 1, Specials::none},
    {"e8m0", 8, 0, Specials::e8m0},
};

// A row of the table for the constants below: a name that is not in the table does not compile here.
constexpr const Format& format_row(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return format;
  throw "no such format";
}

// Rows that the code refers to by name.
inline constexpr Format kFp64 = format_row("fp64");
inline constexpr Format kFp32 = format_row("fp32");
inline constexpr Format kTf32 = format_row("tf32");
inline constexpr Format kFp16 = format_row("fp16");
inline constexpr Format kBf16 = format_row("bf16");
inline constexpr Format kE5m2 = format_row("e5m2");
inline constexpr Format kE4m3 = format_row("e4m3");
inline constexpr Format kE3m2 = format_row("e3m2");
inline constexpr Format kE2m3 = format_row("e2m3");
inline constexpr Format kE2m1 = format_row("e2m1");
inline constexpr Format kE8m0 = format_row("e8m0");

inline std::span<const Format> formats() { return kFormats; }
const Format& format_named(std::string_view name);  // throws Error naming the known ones
std::string_view name_of(Rounding rounding);
std::string_view name_of(Overflow overflow);
Rounding rounding_named(std::string_view name);  // these two throw Error naming the known ones
Overflow overflow_named(std::string_view name);  // infinity, nan or saturate

// Throws Error for a rule that the format cannot follow. For user
// input; round_to itself falls back to the format's own rule.
void require_possible(const Format& format, Overflow overflow);

// x rounded to the format: one rounding, gradual underflow, signed zeros if the format has them. `noise` drives
// stochastic rounding: a uniform 64-bit number, passed by value, so equal noise gives an equal result. A NaN stays NaN;
// if the format has none, it becomes the largest positive number.
// e8m0 takes the absolute value, and anything below 2^-127, including zero, becomes 2^-127 (both as in NVIDIA's
// conversions: cuda_fp4.h, cuda_fp6.h, cuda_fp8.h). Its ties go to the larger power of two, as IEEE 754-2019, 4.3.1,
// specifies for one digit.
double round_to(const Format& format, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// a + b rounded to odd: if the sum is inexact, the one of its two fp64 neighbours with an odd significand. Rounding
// that once more to a format of at most 50 fraction bits gives the correctly rounded sum; rounding a + b twice does not
// (Boldo and Melquiond 2008).
double add_to_odd(double a, double b);

// a * b + c with one rounding. a and b have at most 26 significant
// bits (their product is exact in fp64), or the format is fp64.
double fused_multiply_add(const Format& format, double a, double b, double c, Rounding rounding = Rounding::near_even);

}  // namespace halfmark::kernels
