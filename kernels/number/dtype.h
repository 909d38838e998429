// How numbers are stored: encode and decode of every dtype, one value or an array at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/number/format.h"

namespace halfmark {

enum class DType : uint8_t { f64, f32, f16, bf16, e4m3, e5m2, i32, u8 };

std::span<const DType> dtypes();
std::string_view name_of(DType dtype);
DType dtype_named(std::string_view name);  // throws Error naming the known ones
size_t size_of(DType dtype);               // bytes an element
bool is_floating(DType dtype);
const Format& format_of(DType dtype);  // of a floating dtype: the format whose every value it can hold

// One value. decode is exact; encode rounds once (a NaN becomes the quiet NaN of the dtype, its sign kept). The code is
// in the low bytes. Integers round to nearest and clamp.
double decode(DType dtype, uint64_t code);
uint64_t encode(DType dtype, double x, Rounding rounding = Rounding::near_even, RoundEvents* events = nullptr,
                uint64_t noise = 0);

// One element of an array of `dtype`; `index` counts elements.
double load(DType dtype, const void* data, size_t index);
void store(DType dtype, void* data, size_t index, double x, Rounding rounding = Rounding::near_even,
           RoundEvents* events = nullptr, uint64_t noise = 0);

}  // namespace halfmark
