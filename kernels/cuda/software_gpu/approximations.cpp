#include "kernels/cuda/software_gpu/approximations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

namespace halfmark::kernels::software_gpu {
namespace {

Approximation from_environment() {
  const char* text = std::getenv("HALFMARK_SOFTWARE_GPU_APPROXIMATE");
  if (!text) return Approximation::nearest;
  const std::string name = text;
  if (name == "above") return Approximation::above;
  if (name == "below") return Approximation::below;
  if (name == "scattered") return Approximation::scattered;
  throw std::runtime_error("HALFMARK_SOFTWARE_GPU_APPROXIMATE: '" + name + "' is not above, below or scattered");
}
Approximation& choice() {
  static Approximation made = from_environment();
  return made;
}

// How far a result may be off: in ulp from the correctly rounded one, or from the exact value by part of it, or absolutely.
struct Bound {
  int ulp = 0;
  double relative = 0, absolute = 0;
};

// PTX ISA 9.1, the sections of the instructions, "Notes". Zero: not approximate there, or no error is stated.
Bound bound_of(Function function, double x) {
  constexpr double kTurn = 2 * std::numbers::pi;
  if (std::isinf(x)) return {};
  const bool tiny = std::fabs(x) < 0x1p-126;  // functions that are then 1 or x itself give exactly that
  switch (function) {
    case Function::rcp:
      return {.ulp = 1};
    case Function::sqrt:
      return {.relative = 0x1p-23};
    case Function::rsqrt:
      return {.relative = std::exp2(-22.9)};
    case Function::sin:
    case Function::cos:
      if (tiny) return {};
      if (std::fabs(x) <= kTurn) return {.absolute = std::exp2(-20.5)};
      if (std::fabs(x) <= 50 * kTurn) return {.absolute = std::exp2(-14.7)};
      return {};
    case Function::lg2:
      if (x > 0.5 && x < 2) return {.absolute = 0x1p-22};
      return {.relative = 0x1p-22};
    case Function::ex2:
      // 2^n is exact: CUDA's exp of f32 and tanh of f64 rely on it.
      return {.ulp = tiny || std::trunc(x) == x ? 0 : 2};
    case Function::tanh:
      return {.relative = tiny ? 0 : 0x1p-11};
  }
  return {};
}
constexpr Bound kQuotientBound{.ulp = 2};  // div.approx and div.full

bool drawn_from(uint64_t bits) {  // splitmix64
  uint64_t z = bits + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return ((z ^ z >> 31) & 1) != 0;
}

float moved(float y, int ulp) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (; ulp > 0; --ulp) y = std::nextafter(y, kMost);
  for (; ulp < 0; ++ulp) y = std::nextafter(y, -kMost);
  return y;
}

// The result near `exact` by the choice; `bits` are those of the operands.
float chosen(double exact, const Bound& bound, uint64_t bits) {
  const auto nearest = static_cast<float>(exact);
  // Infinities, NaN and zeros are results of special operands, which are stated exactly, or of overflow and underflow.
  if (choice() == Approximation::nearest || !std::isfinite(nearest) || (nearest == 0 && bound.absolute == 0))
    return nearest;
  const bool is_above = choice() == Approximation::scattered ? drawn_from(bits) : choice() == Approximation::above;
  if (bound.ulp) {
    const float y = moved(nearest, is_above ? bound.ulp : -bound.ulp);
    return y == 0 ? nearest : y;  // a sign is kept
  }
  const double error = bound.relative * std::fabs(exact) + bound.absolute;
  auto y = static_cast<float>(is_above ? exact + error : exact - error);
  // Not rounded out of the interval.
  if (static_cast<double>(y) > exact + error) y = moved(y, -1);
  if (static_cast<double>(y) < exact - error) y = moved(y, 1);
  return error == 0 ? nearest : y;
}

uint64_t bits_of_pair(float a, float b) {
  return uint64_t{std::bit_cast<uint32_t>(a)} << 32 | std::bit_cast<uint32_t>(b);
}
float quotient(float a, float b) {
  return chosen(static_cast<double>(a) / static_cast<double>(b), kQuotientBound, bits_of_pair(a, b));
}

}  // namespace

void set_approximation(Approximation chosen_now) { choice() = chosen_now; }

double value_of(Function function, double x) {
  switch (function) {
    case Function::rcp:
      return 1 / x;
    case Function::sqrt:
      return std::sqrt(x);
    case Function::rsqrt:
      return 1 / std::sqrt(x);
    case Function::sin:
      return std::sin(x);
    case Function::cos:
      return std::cos(x);
    case Function::lg2:
      return std::log2(x);
    case Function::ex2:
      return std::exp2(x);
    case Function::tanh:
      return std::tanh(x);
  }
  return 0;
}

float approximate(Function function, float x) {
  const auto wide = static_cast<double>(x);
  return chosen(value_of(function, wide), bound_of(function, wide), bits_of_pair(static_cast<float>(function), x));
}

// div.approx.f32 gives 0 for divisors above 2^126, and NaN for an infinity over such a divisor.
float approximate_quotient(float a, float b) {
  const float large = std::fabs(b);
  if (large > 0x1p126f && large <= std::numeric_limits<float>::max()) {
    if (std::isinf(a)) return std::numeric_limits<float>::quiet_NaN();
    return std::copysign(0.0f, std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f);
  }
  return large < 0x1p-126f ? a / b : quotient(a, b);  // no bound is stated for smaller divisors
}
float approximate_full_quotient(float a, float b) { return quotient(a, b); }

}  // namespace halfmark::kernels::software_gpu
