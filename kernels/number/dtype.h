// How numbers are stored: encode and decode of every dtype, one value or an array at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/format.h"

namespace halfmark::kernels {

// All dtypes. FLOATING: its name, the name of its format in format.h. INTEGER: its name, bits, signed.
#define HM_DTYPES(FLOATING, INTEGER) \
  FLOATING(f64, "fp64")              \
  FLOATING(f32, "fp32")              \
  FLOATING(f16, "fp16")              \
  FLOATING(bf16, "bf16")             \
  FLOATING(e4m3, "e4m3")             \
  FLOATING(e5m2, "e5m2")             \
  FLOATING(e4m3fnuz, "e4m3fnuz")     \
  FLOATING(e5m2fnuz, "e5m2fnuz")     \
  FLOATING(e2m1, "e2m1")             \
  FLOATING(e3m2, "e3m2")             \
  FLOATING(e2m3, "e2m3")             \
  FLOATING(e8m0, "e8m0")             \
  INTEGER(i32, 32, true)             \
  INTEGER(u8, 8, false)

enum class DType : uint8_t {
#define HM_NAME(dtype, ...) dtype,
  HM_DTYPES(HM_NAME, HM_NAME)
#undef HM_NAME
};

std::span<const DType> dtypes();
std::string_view name_of(DType dtype);
DType dtype_named(std::string_view name);  // throws Error naming the known ones
bool is_floating(DType dtype);

// Storage size: a code has bits_of bits (6 for e3m2 and e2m3); `count` consecutive elements take bytes_for bytes. An
// element takes whole bytes, except e2m1, which is packed two per byte with the even index in the low half (as
// __nv_fp4x2 in cuda_fp4.h). size_of(e2m1) is therefore an Error. Element i of even index i starts at byte
// bytes_for(dtype, i).
int bits_of(DType dtype);
bool is_packed(DType dtype);
size_t bytes_for(DType dtype, size_t count);
size_t size_of(DType dtype);  // bytes per element

const Format& format_of(DType dtype);  // for a floating dtype: the format with exactly its values

// One value. decode is exact; encode rounds once as round_to does (a NaN becomes the quiet NaN of the dtype and keeps
// its sign). The code is in the low bits; decode ignores the rest. Integers are rounded to nearest and clamped.
double decode(DType dtype, uint64_t code);
uint64_t encode(DType dtype, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// The same for any format, including those without a dtype (tf32).
double decode_format(const Format& format, uint64_t code);
uint64_t encode_format(const Format& format, double x, Rounding rounding = Rounding::near_even,
                       RoundEvents* events = nullptr, uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// One element of an array of `dtype`; `index` counts elements. Not thread-safe within a byte: storing a packed element
// reads and writes its neighbour, so two threads must not share a byte.
uint64_t load_code(DType dtype, const void* data, size_t index);
void store_code(DType dtype, void* data, size_t index, uint64_t code);
double load(DType dtype, const void* data, size_t index);
void store(DType dtype, void* data, size_t index, double x, Rounding rounding = Rounding::near_even,
           RoundEvents* events = nullptr, uint64_t noise = 0, Overflow overflow = Overflow::format_default);

}  // namespace halfmark::kernels
