// Formats that numbers are computed in, as rows of one table, and the one routine that rounds to any of them.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace halfmark {

// 2^exponent, from -1022 to 1023: much faster than ldexp where it is called for every number.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// What the codes with the largest exponent field mean.
enum class Specials : uint8_t {
  ieee,      // infinities and NaNs, as in IEEE 754
  nan_only,  // OCP E4M3: all ones is NaN, there is no infinity, the rest of that exponent are ordinary numbers
  none,      // OCP FP6, FP4: every code is an ordinary number
  scale,     // OCP E8M0: a power of two without sign, zero or subnormals; all ones is NaN
};

enum class Rounding : uint8_t { near_even, toward_zero, near_away, stochastic };

// What becomes of a finite number that rounding carries beyond the largest one. toward_zero carries nothing there: it
// gives the largest number under every rule. And what becomes of an infinity: it stays one where the format has
// infinities and the rule is not `saturate`; else the rule holds for it, too (OFP8 1.0: in saturating mode
// infinities become the largest number, and a NaN stays NaN).
enum class Overflow : uint8_t {
  format_default,  // infinity where the format has one, else NaN where it has that, else the largest number
  infinity,        // a format without infinity: as format_default; see require_possible()
  nan,             // a format without NaN: as format_default
  saturate,        // the largest number
};

// What rounding lost, counted over every value that passed.
struct RoundEvents {
  uint64_t values = 0;     // all that passed
  uint64_t inexact = 0;    // changed
  uint64_t overflow = 0;   // finite and too large: became infinite, NaN or the largest number
  uint64_t underflow = 0;  // non-zero, and became zero
  uint64_t subnormal = 0;  // became a subnormal number
};

struct Format {
  std::string_view name;
  int exponent_bits;
  int fraction_bits;  // stored; the leading bit is not counted
  Specials specials = Specials::ieee;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int min_exponent() const { return (is_scale() ? 0 : 1) - bias(); }  // of the smallest normal number
  constexpr int max_exponent() const { return specials == Specials::ieee || is_scale() ? bias() : bias() + 1; }
  constexpr int min_subnormal_exponent() const { return min_exponent() - fraction_bits; }
  constexpr int bits() const { return (is_scale() ? 0 : 1) + exponent_bits + fraction_bits; }  // of a code
  constexpr bool has_infinity() const { return specials == Specials::ieee; }
  constexpr bool has_nan() const { return specials != Specials::none; }
  constexpr bool is_scale() const { return specials == Specials::scale; }  // no sign, no zero
  constexpr double max_finite() const {
    // nan_only gives up the all-ones fraction of the largest exponent.
    return (2 - power_of_two((specials == Specials::nan_only ? 1 : 0) - fraction_bits)) * power_of_two(max_exponent());
  }
  double unit_roundoff() const;  // 2^-(fraction_bits + 1): the largest relative error of near_even among normal numbers
  friend constexpr bool operator==(const Format& a, const Format& b) { return a.name == b.name; }
};

// The table. Sources: IEEE 754-2019 (fp64, fp32, fp16); NVIDIA A100 white paper (tf32: 8 exponent bits of fp32 and 10
// fraction bits of fp16); Intel bfloat16 definition rev 1.0; OCP 8-bit floating point specification (OFP8) rev 1.0; OCP
// Microscaling formats (MX) specification v1.0, section 5.3 (e3m2, e2m3, e2m1) and 5.4 (e8m0).
inline constexpr Format kFp64{"fp64", 11, 52};
inline constexpr Format kFp32{"fp32", 8, 23};
inline constexpr Format kTf32{"tf32", 8, 10};
inline constexpr Format kFp16{"fp16", 5, 10};
inline constexpr Format kBf16{"bf16", 8, 7};
inline constexpr Format kE5m2{"e5m2", 5, 2};
inline constexpr Format kE4m3{"e4m3", 4, 3, Specials::nan_only};
inline constexpr Format kE3m2{"e3m2", 3, 2, Specials::none};
inline constexpr Format kE2m3{"e2m3", 2, 3, Specials::none};
inline constexpr Format kE2m1{"e2m1", 2, 1, Specials::none};
inline constexpr Format kE8m0{"e8m0", 8, 0, Specials::scale};

std::span<const Format> formats();
const Format& format_named(std::string_view name);  // throws Error naming the known ones
std::string_view name_of(Rounding rounding);
std::string_view name_of(Overflow overflow);
Rounding rounding_named(std::string_view name);  // these two throw Error naming the known ones
Overflow overflow_named(std::string_view name);  // infinity, nan or saturate

// Throws Error for a rule that the format cannot follow. For words that a person wrote; round_to itself falls back on
// the format's own rule.
void require_possible(const Format& format, Overflow overflow);

// x rounded to the format: one rounding, gradual underflow, signed zeros kept. `noise` drives stochastic rounding: a
// uniform 64-bit number, used by value, so equal noise gives an equal result.
// A NaN stays one; where the format has none it becomes the largest positive number. e8m0 takes the absolute value, and
// what is smaller than 2^-127, zero included, becomes 2^-127 (both as NVIDIA's conversions: cuda_fp4.h, cuda_fp6.h,
// cuda_fp8.h); its tie goes to the larger power of two, as in IEEE 754-2019, 4.3.1, for one digit.
double round_to(const Format& format, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// a + b rounded to odd: the nearest fp64 numbers' odd one where the sum is inexact. Rounding that once more to a format
// of at most 50 fraction bits gives the correctly rounded sum, which rounding a + b twice does not (Boldo and Melquiond
// 2008).
double add_to_odd(double a, double b);

// a * b + c with one rounding, for a, b of at most 26 significant bits (their product is exact in fp64) or format fp64.
double fused_multiply_add(const Format& format, double a, double b, double c, Rounding rounding = Rounding::near_even);

}  // namespace halfmark
