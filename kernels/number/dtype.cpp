#include "kernels/number/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/number/error.h"

namespace halfmark {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t bytes;
  const Format* format;  // null: an integer
};

constexpr std::array kRows{
    Row{DType::f64, "f64", 8, &kFp64},   Row{DType::f32, "f32", 4, &kFp32},   Row{DType::f16, "f16", 2, &kFp16},
    Row{DType::bf16, "bf16", 2, &kBf16}, Row{DType::e4m3, "e4m3", 1, &kE4m3}, Row{DType::e5m2, "e5m2", 1, &kE5m2},
    Row{DType::i32, "i32", 4, nullptr},  Row{DType::u8, "u8", 1, nullptr},
};

constexpr auto kDTypes = [] {
  std::array<DType, kRows.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].dtype;
  return all;
}();

const Row& row_of(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

// Any sign-exponent-fraction code of at most 32 bits to fp64, exactly.
double decode_float(const Format& format, uint64_t code) {
  const int fraction_bits = format.fraction_bits;
  const uint64_t fraction = code & ((uint64_t{1} << fraction_bits) - 1);
  const int field = static_cast<int>(code >> fraction_bits) & ((1 << format.exponent_bits) - 1);
  const bool negative = (code >> (fraction_bits + format.exponent_bits)) & 1;
  const bool top = field == (1 << format.exponent_bits) - 1;
  const bool all_ones = fraction == (uint64_t{1} << fraction_bits) - 1;
  double magnitude = 0;
  if (top && (format.specials == Specials::ieee ? true : all_ones)) {
    magnitude = format.specials == Specials::ieee && fraction == 0 ? std::numeric_limits<double>::infinity()
                                                                   : std::numeric_limits<double>::quiet_NaN();
  } else {
    const uint64_t significand = fraction | (field ? uint64_t{1} << fraction_bits : 0);
    magnitude = std::ldexp(static_cast<double>(significand), std::max(field, 1) - format.bias() - fraction_bits);
  }
  return std::copysign(magnitude, negative ? -1.0 : 1.0);
}

// A value of the format (already rounded) to its code.
uint64_t encode_float(const Format& format, double x) {
  const int fraction_bits = format.fraction_bits;
  const uint64_t sign = std::signbit(x) ? uint64_t{1} << (fraction_bits + format.exponent_bits) : 0;
  const uint64_t top = ((uint64_t{1} << format.exponent_bits) - 1) << fraction_bits;
  if (std::isnan(x)) {
    // Quiet NaN: the leading fraction bit; E4M3 has all ones only.
    const uint64_t payload =
        format.specials == Specials::ieee ? uint64_t{1} << (fraction_bits - 1) : (uint64_t{1} << fraction_bits) - 1;
    return sign | top | payload;
  }
  if (std::isinf(x)) return sign | top;
  const double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent());
  const auto significand = static_cast<uint64_t>(std::ldexp(magnitude, fraction_bits - exponent));
  const uint64_t hidden = uint64_t{1} << fraction_bits;
  // Subnormal: field 0. Normal: the hidden bit adds one to the field.
  return sign | ((static_cast<uint64_t>(exponent + format.bias() - 1) << fraction_bits) + significand -
                 (significand < hidden ? static_cast<uint64_t>(exponent + format.bias() - 1) << fraction_bits : 0));
}

}  // namespace

std::span<const DType> dtypes() { return kDTypes; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
size_t size_of(DType dtype) { return row_of(dtype).bytes; }
bool is_floating(DType dtype) { return row_of(dtype).format != nullptr; }

DType dtype_named(std::string_view name) {
  std::string known;
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error("unknown dtype '" + std::string(name) + "'; known: " + known);
}

const Format& format_of(DType dtype) {
  const Row& row = row_of(dtype);
  HM_CHECK(row.format, "dtype " + std::string(row.name) + " has no number format: it holds integers");
  return *row.format;
}

double decode(DType dtype, uint64_t code) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<double>(code);
    case DType::f32:
      return std::bit_cast<float>(static_cast<uint32_t>(code));
    case DType::i32:
      return static_cast<int32_t>(static_cast<uint32_t>(code));
    case DType::u8:
      return static_cast<uint8_t>(code);
    default:
      return decode_float(format_of(dtype), code);
  }
}

uint64_t encode(DType dtype, double x, Rounding rounding, RoundEvents* events, uint64_t noise) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<uint64_t>(x);
    case DType::i32: {
      if (std::isnan(x)) return 0;
      const double clamped = std::clamp(std::nearbyint(x), -2147483648.0, 2147483647.0);
      return static_cast<uint32_t>(static_cast<int32_t>(clamped));
    }
    case DType::u8:
      return std::isnan(x) ? 0 : static_cast<uint8_t>(std::clamp(std::nearbyint(x), 0.0, 255.0));
    default: {
      const Format& format = format_of(dtype);
      return encode_float(format, round_to(format, x, rounding, events, noise));
    }
  }
}

double load(DType dtype, const void* data, size_t index) {
  uint64_t code = 0;  // little-endian hosts only: the low bytes are the code
  std::memcpy(&code, static_cast<const char*>(data) + index * size_of(dtype), size_of(dtype));
  return decode(dtype, code);
}

void store(DType dtype, void* data, size_t index, double x, Rounding rounding, RoundEvents* events, uint64_t noise) {
  const uint64_t code = encode(dtype, x, rounding, events, noise);
  std::memcpy(static_cast<char*>(data) + index * size_of(dtype), &code, size_of(dtype));
}

}  // namespace halfmark
