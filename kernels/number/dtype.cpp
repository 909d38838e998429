#include "kernels/number/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

constexpr int kPackedBits = 4;  // the only size of code that is packed

struct Row {
  DType dtype;
  std::string_view name;
  const Format* format;  // null for an integer
  int bits;              // of a code
  bool is_signed = true;

  // Whole bytes, except a code of half a byte: two of them share one byte.
  constexpr int stored_bits() const { return bits == kPackedBits ? bits : (bits + 7) / 8 * 8; }
};

constexpr Row floating(DType dtype, std::string_view name, std::string_view format) {
  return {dtype, name, &format_row(format), format_row(format).bits()};
}

// In the order of DType.
constexpr std::array kRows{
#define HM_FLOATING(dtype, format) floating(DType::dtype, #dtype, format),
#define HM_INTEGER(dtype, bits, is_signed) Row{DType::dtype, #dtype, nullptr, bits, is_signed},
    HM_DTYPES(HM_FLOATING, HM_INTEGER)
#undef HM_FLOATING
#undef HM_INTEGER
};

constexpr auto kDTypes = [] {
  std::array<DType, kRows.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].dtype;
  return all;
}();

constexpr const Row& row_of(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

int exponent_of(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7FF) - 1023; }

// Code of a value that is already rounded to the format.
uint64_t encode_rounded(const Format& format, double x) {
  if (format.fraction_bits == kFp64.fraction_bits) return std::bit_cast<uint64_t>(x);
  const uint64_t sign = std::signbit(x) ? format.sign_code() : 0;
  if (std::isnan(x)) return sign | format.quiet_nan_code();
  if (std::isinf(x)) return sign | format.infinity_code();
  if (format.is_scale()) {
    const int code = exponent_of(x) + format.bias();
    return static_cast<uint64_t>(code);
  }
  if (x == 0) return sign;
  const int fraction_bits = format.fraction_bits;
  const int exponent = std::max(exponent_of(x), format.min_exponent());
  const auto significand = static_cast<uint64_t>(std::fabs(x) * power_of_two(fraction_bits - exponent));
  // The hidden bit of a normal number adds one to the exponent field; a subnormal number has no hidden bit and field 0.
  return sign | ((static_cast<uint64_t>(exponent + format.bias() - 1) << fraction_bits) + significand);
}

constexpr size_t kInByte = 8 / kPackedBits;
constexpr unsigned kPackedMask = (1u << kPackedBits) - 1;

// Smallest and largest number of an integer dtype.
double least_of(const Row& integer) { return integer.is_signed ? -std::ldexp(1.0, integer.bits - 1) : 0; }
double most_of(const Row& integer) { return std::ldexp(1.0, integer.bits - (integer.is_signed ? 1 : 0)) - 1; }

}  // namespace

std::span<const DType> dtypes() { return kDTypes; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).format != nullptr; }
int bits_of(DType dtype) { return row_of(dtype).bits; }
bool is_packed(DType dtype) { return row_of(dtype).stored_bits() == kPackedBits; }

size_t bytes_for(DType dtype, size_t count) {
  const auto bits = static_cast<size_t>(row_of(dtype).stored_bits());
  return bits == kPackedBits ? (count + kInByte - 1) / kInByte : count * (bits / 8);
}

size_t size_of(DType dtype) {
  HM_CHECK(!is_packed(dtype), "elements of dtype " + std::string(name_of(dtype)) + " are packed, " +
                                  std::to_string(8 / row_of(dtype).stored_bits()) +
                                  " to a byte: count them with bytes_for");
  return static_cast<size_t>(row_of(dtype).stored_bits()) / 8;
}

DType dtype_named(std::string_view name) { return named("dtype", kRows, name).dtype; }

const Format& format_of(DType dtype) {
  const Row& row = row_of(dtype);
  HM_CHECK(row.format, "dtype " + std::string(row.name) + " has no number format: it holds integers");
  return *row.format;
}

double decode_format(const Format& format, uint64_t code) {
  if (format.fraction_bits == kFp64.fraction_bits) return std::bit_cast<double>(code);
  const bool negative = code & format.sign_code();
  if (format.is_nan_code(code)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return negative && format.has_negative_zero() ? -nan : nan;
  }
  const uint64_t magnitude = code & format.all_ones_code();
  const int fraction_bits = format.fraction_bits, field = static_cast<int>(magnitude >> fraction_bits);
  if (format.is_scale()) return power_of_two(field - format.bias());
  if (magnitude > format.largest_code())
    return std::copysign(std::numeric_limits<double>::infinity(), negative ? -1 : 1);
  const uint64_t significand =
      (magnitude & ((uint64_t{1} << fraction_bits) - 1)) | (field ? uint64_t{1} << fraction_bits : 0);
  const double value =
      static_cast<double>(significand) * power_of_two(std::max(field, 1) - format.bias() - fraction_bits);
  return negative ? -value : value;
}

uint64_t encode_format(const Format& format, double x, Rounding rounding, RoundEvents* events, uint64_t noise,
                       Overflow overflow) {
  return encode_rounded(format, round_to(format, x, rounding, events, noise, overflow));
}

double decode(DType dtype, uint64_t code) {
  const Row& row = row_of(dtype);
  if (dtype == DType::f32) return std::bit_cast<float>(static_cast<uint32_t>(code));  // much faster
  if (row.format) return decode_format(*row.format, code);
  const int above = 64 - row.bits;
  return row.is_signed ? static_cast<double>(static_cast<int64_t>(code << above) >> above)
                       : static_cast<double>(code << above >> above);
}

uint64_t encode(DType dtype, double x, Rounding rounding, RoundEvents* events, uint64_t noise, Overflow overflow) {
  const Row& row = row_of(dtype);
  if (row.format) return encode_format(*row.format, x, rounding, events, noise, overflow);
  if (std::isnan(x)) return 0;
  const double clamped = std::clamp(std::nearbyint(x), least_of(row), most_of(row));
  return static_cast<uint64_t>(static_cast<int64_t>(clamped)) & ((uint64_t{1} << row.bits) - 1);
}

uint64_t load_code(DType dtype, const void* data, size_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (is_packed(dtype)) return (bytes[index / kInByte] >> (index % kInByte * kPackedBits)) & kPackedMask;
  uint64_t code = 0;  // little-endian hosts only: the low bytes are the code
  const size_t size = size_of(dtype);
  std::memcpy(&code, bytes + index * size, size);
  return code;
}

void store_code(DType dtype, void* data, size_t index, uint64_t code) {
  auto* bytes = static_cast<unsigned char*>(data);
  if (is_packed(dtype)) {
    const size_t shift = index % kInByte * kPackedBits;
    unsigned char& byte = bytes[index / kInByte];
    byte = static_cast<unsigned char>((byte & ~(kPackedMask << shift)) | (code & kPackedMask) << shift);
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

}  // namespace halfmark::kernels
