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
  int bits;              // of a code
  int stored_bits;       // of its room in memory
  const Format* format;  // null: an integer
};

constexpr std::array kRows{
    Row{DType::f64, "f64", 64, 64, &kFp64},  Row{DType::f32, "f32", 32, 32, &kFp32},
    Row{DType::f16, "f16", 16, 16, &kFp16},  Row{DType::bf16, "bf16", 16, 16, &kBf16},
    Row{DType::e4m3, "e4m3", 8, 8, &kE4m3},  Row{DType::e5m2, "e5m2", 8, 8, &kE5m2},
    Row{DType::e2m1, "e2m1", 4, 4, &kE2m1},  Row{DType::e3m2, "e3m2", 6, 8, &kE3m2},
    Row{DType::e2m3, "e2m3", 6, 8, &kE2m3},  Row{DType::e8m0, "e8m0", 8, 8, &kE8m0},
    Row{DType::i32, "i32", 32, 32, nullptr}, Row{DType::u8, "u8", 8, 8, nullptr},
};

constexpr auto kDTypes = [] {
  std::array<DType, kRows.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].dtype;
  return all;
}();

const Row& row_of(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

double decode_scale(const Format& format, uint64_t code) {
  const auto field = static_cast<int>(code & ((uint64_t{1} << format.exponent_bits) - 1));
  const bool all_ones = field == (1 << format.exponent_bits) - 1;
  return all_ones ? std::numeric_limits<double>::quiet_NaN() : power_of_two(field - format.bias());
}

int exponent_of(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7FF) - 1023; }

// A value of the format (already rounded) to its code.
uint64_t encode_rounded(const Format& format, double x) {
  if (format.fraction_bits == kFp64.fraction_bits) return std::bit_cast<uint64_t>(x);
  if (format.is_scale())
    return std::isnan(x) ? (uint64_t{1} << format.exponent_bits) - 1
                         : static_cast<uint64_t>(exponent_of(x) + format.bias());
  const int fraction_bits = format.fraction_bits;
  const uint64_t sign = std::signbit(x) ? uint64_t{1} << (fraction_bits + format.exponent_bits) : 0;
  const uint64_t top = ((uint64_t{1} << format.exponent_bits) - 1) << fraction_bits;
  if (std::isnan(x)) {
    // Quiet NaN: the leading fraction bit; E4M3 has all ones only.
    const uint64_t payload =
        format.has_infinity() ? uint64_t{1} << (fraction_bits - 1) : (uint64_t{1} << fraction_bits) - 1;
    return sign | top | payload;
  }
  if (std::isinf(x)) return sign | top;
  if (x == 0) return sign;
  const int exponent = std::max(exponent_of(x), format.min_exponent());
  const auto significand = static_cast<uint64_t>(std::fabs(x) * power_of_two(fraction_bits - exponent));
  // The hidden bit of a normal number adds one to the field; a subnormal one has none and field 0.
  return sign | ((static_cast<uint64_t>(exponent + format.bias() - 1) << fraction_bits) + significand);
}

}  // namespace

std::span<const DType> dtypes() { return kDTypes; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).format != nullptr; }
int bits_of(DType dtype) { return row_of(dtype).bits; }
bool is_packed(DType dtype) { return row_of(dtype).stored_bits < 8; }

size_t bytes_for(DType dtype, size_t count) {
  const auto bits = static_cast<size_t>(row_of(dtype).stored_bits);
  return bits < 8 ? (count * bits + 7) / 8 : count * (bits / 8);
}

size_t size_of(DType dtype) {
  HM_CHECK(!is_packed(dtype), "elements of dtype " + std::string(name_of(dtype)) + " are packed, " +
                                  std::to_string(8 / row_of(dtype).stored_bits) +
                                  " to a byte: count them with bytes_for");
  return static_cast<size_t>(row_of(dtype).stored_bits) / 8;
}

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

double decode_format(const Format& format, uint64_t code) {
  if (format.fraction_bits == kFp64.fraction_bits) return std::bit_cast<double>(code);
  if (format.is_scale()) return decode_scale(format, code);
  const int fraction_bits = format.fraction_bits;
  const uint64_t fraction = code & ((uint64_t{1} << fraction_bits) - 1);
  const int field = static_cast<int>(code >> fraction_bits) & ((1 << format.exponent_bits) - 1);
  const bool negative = (code >> (fraction_bits + format.exponent_bits)) & 1;
  const bool top = field == (1 << format.exponent_bits) - 1;
  const bool all_ones = fraction == (uint64_t{1} << fraction_bits) - 1;
  double magnitude = 0;
  if (top && (format.has_infinity() || (format.has_nan() && all_ones))) {
    magnitude = format.has_infinity() && fraction == 0 ? std::numeric_limits<double>::infinity()
                                                       : std::numeric_limits<double>::quiet_NaN();
  } else {
    const uint64_t significand = fraction | (field ? uint64_t{1} << fraction_bits : 0);
    magnitude = static_cast<double>(significand) * power_of_two(std::max(field, 1) - format.bias() - fraction_bits);
  }
  return std::copysign(magnitude, negative ? -1.0 : 1.0);
}

uint64_t encode_format(const Format& format, double x, Rounding rounding, RoundEvents* events, uint64_t noise,
                       Overflow overflow) {
  return encode_rounded(format, round_to(format, x, rounding, events, noise, overflow));
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
      return decode_format(format_of(dtype), code);
  }
}

uint64_t encode(DType dtype, double x, Rounding rounding, RoundEvents* events, uint64_t noise, Overflow overflow) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<uint64_t>(round_to(kFp64, x, rounding, events, noise, overflow));
    case DType::i32: {
      if (std::isnan(x)) return 0;
      const double clamped = std::clamp(std::nearbyint(x), -2147483648.0, 2147483647.0);
      return static_cast<uint32_t>(static_cast<int32_t>(clamped));
    }
    case DType::u8:
      return std::isnan(x) ? 0 : static_cast<uint8_t>(std::clamp(std::nearbyint(x), 0.0, 255.0));
    default:
      return encode_format(format_of(dtype), x, rounding, events, noise, overflow);
  }
}

uint64_t load_code(DType dtype, const void* data, size_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (is_packed(dtype)) return (bytes[index / 2] >> (index % 2 * 4)) & 0xF;
  uint64_t code = 0;  // little-endian hosts only: the low bytes are the code
  const size_t size = size_of(dtype);
  std::memcpy(&code, bytes + index * size, size);
  return code;
}

void store_code(DType dtype, void* data, size_t index, uint64_t code) {
  auto* bytes = static_cast<unsigned char*>(data);
  if (is_packed(dtype)) {
    const size_t shift = index % 2 * 4;
    bytes[index / 2] = static_cast<unsigned char>((bytes[index / 2] & ~(0xF << shift)) | (code & 0xF) << shift);
    return;
  }
  const size_t size = size_of(dtype);
  std::memcpy(bytes + index * size, &code, size);
}

double load(DType dtype, const void* data, size_t index) { return decode(dtype, load_code(dtype, data, index)); }

void store(DType dtype, void* data, size_t index, double x, Rounding rounding, RoundEvents* events, uint64_t noise,
           Overflow overflow) {
  store_code(dtype, data, index, encode(dtype, x, rounding, events, noise, overflow));
}

}  // namespace halfmark
