// Formats that numbers are computed in, as rows of one table, and the one routine that rounds to any of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfmark {

// What the codes with the largest exponent field mean.
enum class Specials : uint8_t {
  ieee,      // infinities and NaNs, as in IEEE 754
  nan_only,  // OCP E4M3: all ones is NaN, there is no infinity, the rest of that exponent are ordinary numbers
};

enum class Rounding : uint8_t { near_even, toward_zero, near_away, stochastic };

// What rounding lost, counted over every value that passed.
struct RoundEvents {
  uint64_t values = 0;     // all that passed
  uint64_t inexact = 0;    // changed
  uint64_t overflow = 0;   // finite, and became infinite, NaN (E4M3) or the largest number (toward_zero)
  uint64_t underflow = 0;  // non-zero, and became zero
  uint64_t subnormal = 0;  // became a subnormal number
};

struct Format {
  std::string_view name;
  int exponent_bits;
  int fraction_bits;  // stored; the leading bit is not counted
  Specials specials = Specials::ieee;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int min_exponent() const { return 1 - bias(); }  // of the smallest normal number
  constexpr int max_exponent() const { return specials == Specials::ieee ? bias() : bias() + 1; }
  constexpr int min_subnormal_exponent() const { return min_exponent() - fraction_bits; }
  double max_finite() const;
  double unit_roundoff() const;  // 2^-(fraction_bits + 1): the largest relative error of near_even among normal numbers
  friend constexpr bool operator==(const Format& a, const Format& b) { return a.name == b.name; }
};

// The table. Sources: IEEE 754-2019 (fp64, fp32, fp16); NVIDIA A100 white paper (tf32: 8 exponent bits of fp32 and 10
// fraction bits of fp16); Intel bfloat16 definition rev 1.0; OCP 8-bit floating point specification (OFP8) rev 1.0.
inline constexpr Format kFp64{"fp64", 11, 52};
inline constexpr Format kFp32{"fp32", 8, 23};
inline constexpr Format kTf32{"tf32", 8, 10};
inline constexpr Format kFp16{"fp16", 5, 10};
inline constexpr Format kBf16{"bf16", 8, 7};
inline constexpr Format kE5m2{"e5m2", 5, 2};
inline constexpr Format kE4m3{"e4m3", 4, 3, Specials::nan_only};

std::span<const Format> formats();
const Format& format_named(std::string_view name);  // throws Error naming the known ones
std::string_view name_of(Rounding rounding);

// x rounded to the format: one rounding, gradual underflow, signed zeros kept. Overflow follows IEEE 754: to infinity
// (to NaN where the format has none), but to the largest number under toward_zero. `noise` drives stochastic rounding:
// a uniform 64-bit number, used by value, so equal noise gives an equal result.
double round_to(const Format& format, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0);

// a + b rounded to odd: the nearest fp64 numbers' odd one where the sum is inexact. Rounding that once more to a format
// of at most 50 fraction bits gives the correctly rounded sum, which rounding a + b twice does not (Boldo and Melquiond
// 2008).
double add_to_odd(double a, double b);

// a * b + c with one rounding, for a, b of at most 26 significant bits (their product is exact in fp64) or format fp64.
double fused_multiply_add(const Format& format, double a, double b, double c, Rounding rounding = Rounding::near_even);

}  // namespace halfmark
