// How numbers are stored: encode and decode of every dtype, one value or an array at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/format.h"

namespace halfmark::kernels {

enum class DType : uint8_t { f64, f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e3m2, e2m3, e8m0, i32, u8 };

std::span<const DType> dtypes();
std::string_view name_of(DType dtype);
DType dtype_named(std::string_view name);  // throws Error naming the known ones
bool is_floating(DType dtype);

// How much room: a code has bits_of bits (6 for e3m2 and e2m3), `count` elements in a row take bytes_for bytes. An
// element takes whole bytes, but e2m1 is packed: two to a byte, the even index in the low half (as __nv_fp4x2 in
// cuda_fp4.h), so size_of(e2m1) is an Error. The byte that holds element i is number bytes_for(dtype, i) for an even i.
int bits_of(DType dtype);
bool is_packed(DType dtype);
size_t bytes_for(DType dtype, size_t count);
size_t size_of(DType dtype);  // bytes an element

const Format& format_of(DType dtype);  // of a floating dtype: the format whose every value it can hold

// One value. decode is exact; encode rounds once as round_to does (a NaN becomes the quiet NaN of the dtype, its sign
// kept). The code is in the low bits; decode ignores the rest. Integers round to nearest and clamp.
double decode(DType dtype, uint64_t code);
uint64_t encode(DType dtype, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// The same for any format, also those that nothing is stored in (tf32).
double decode_format(const Format& format, uint64_t code);
uint64_t encode_format(const Format& format, double x, Rounding rounding = Rounding::near_even,
                       RoundEvents* events = nullptr, uint64_t noise = 0, Overflow overflow = Overflow::format_default);

// One element of an array of `dtype`; `index` counts elements. Storing a packed element reads and writes its
// neighbour: two threads must not share a byte.
uint64_t load_code(DType dtype, const void* data, size_t index);
void store_code(DType dtype, void* data, size_t index, uint64_t code);
double load(DType dtype, const void* data, size_t index);
void store(DType dtype, void* data, size_t index, double x, Rounding rounding = Rounding::near_even,
           RoundEvents* events = nullptr, uint64_t noise = 0, Overflow overflow = Overflow::format_default);

}  // namespace halfmark::kernels
