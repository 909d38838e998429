#include "kernels/number/block_scaled.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

// Sources: OCP Microscaling formats (MX) specification v1.0, section 5.1 (element types, blocks of 32, e8m0); NVIDIA,
// "Pretraining large language models with NVFP4", 2025 (e2m1, blocks of 16, e4m3 and one f32).
constexpr std::array kBlockFormats{
    BlockFormat{"mxfp8-e4m3", DType::e4m3, DType::e8m0, 32, false},
    BlockFormat{"mxfp8-e5m2", DType::e5m2, DType::e8m0, 32, false},
    BlockFormat{"mxfp6-e3m2", DType::e3m2, DType::e8m0, 32, false},
    BlockFormat{"mxfp6-e2m3", DType::e2m3, DType::e8m0, 32, false},
    BlockFormat{"mxfp4", DType::e2m1, DType::e8m0, 32, false},
    BlockFormat{"nvfp4", DType::e2m1, DType::e4m3, 16, true},
};

// NaN if a value is not finite.
double largest_magnitude(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  return largest;
}

// MX v1.0, section 6.3: the largest power of two not above amax,
// divided by the largest power of two in the element format.
double mx_scale(const BlockFormat& format, double amax) {
  const Format& scale = format_of(format.scale);
  if (amax == 0) return power_of_two(scale.min_exponent());
  const int exponent = std::ilogb(amax) - format_of(format.element).max_exponent();
  return power_of_two(std::clamp(exponent, scale.min_exponent(), scale.max_exponent()));
}

double product_of_largest(const BlockFormat& format) {
  return format_of(format.scale).max_finite() * format_of(format.element).max_finite();
}

float tensor_scale_for(const BlockFormat& format, std::span<const float> values, size_t depth) {
  double largest = 0;
  for (size_t row = 0; depth && row < values.size() / depth; ++row)
    for (size_t k = 0; k < depth; k += format.block) {
      const double amax = largest_magnitude(values.subspan(row * depth + k, std::min(format.block, depth - k)));
      if (!std::isnan(amax)) largest = std::max(largest, amax);
    }
  if (largest == 0) return 1;
  return std::max(static_cast<float>(largest / product_of_largest(format)), std::numeric_limits<float>::denorm_min());
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kBlockFormats; }

const BlockFormat& block_format_named(std::string_view name) { return named("block format", kBlockFormats, name); }

double BlockScaled::value(size_t row, size_t k) const {
  // At most 4 + 4 + 24 significant bits, so the product is exact in fp64.
  return load(format->element, codes.data(), row * depth + k) *
         load(format->scale, scales.data(), row * blocks() + k / format->block) * static_cast<double>(tensor_scale);
}

std::vector<double> BlockScaled::values() const {
  std::vector<double> all(rows * depth);
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < depth; ++k) all[row * depth + k] = value(row, k);
  return all;
}

BlockScaled quantize(const BlockFormat& format, std::span<const float> values, size_t rows, size_t depth,
                     Rounding rounding) {
  HM_CHECK(values.size() == rows * depth, "a matrix of " + std::to_string(rows) + " x " + std::to_string(depth) +
                                              " has " + std::to_string(rows * depth) + " values, not " +
                                              std::to_string(values.size()));
  HM_CHECK(rounding != Rounding::stochastic, "block formats do not support stochastic rounding");
  BlockScaled result{&format, rows, depth, {}, {}, 1};
  result.codes.resize(bytes_for(format.element, values.size()));
  result.scales.resize(bytes_for(format.scale, rows * result.blocks()));
  if (format.tensor_scale) result.tensor_scale = tensor_scale_for(format, values, depth);
  const auto tensor_scale = static_cast<double>(result.tensor_scale);

  for (size_t row = 0; row < rows; ++row)
    for (size_t b = 0; b < result.blocks(); ++b) {
      const size_t first = row * depth + b * format.block, count = std::min(format.block, depth - b * format.block);
      const double amax = largest_magnitude(values.subspan(first, count));
      const double wanted = std::isnan(amax)      ? amax
                            : format.tensor_scale ? amax / format_of(format.element).max_finite() / tensor_scale
                                                  : mx_scale(format, amax);
      const size_t scale_index = row * result.blocks() + b;
      store(format.scale, result.scales.data(), scale_index, wanted, Rounding::near_even, nullptr, 0,
            Overflow::saturate);
      const double scale = load(format.scale, result.scales.data(), scale_index) * tensor_scale;
      for (size_t i = first; i < first + count; ++i) {
        // The quotient is exact for a power of two. Otherwise it is so close that the following rounding equals that of
        // the exact quotient: numerator and denominator have at most 24 and 28 significant bits, so the quotient is a
        // tie with few bits or at least 2^-33 away from every tie.
        const double x = static_cast<double>(values[i]);
        const double quotient = std::isnan(scale) ? 0 : scale == 0 ? std::copysign(0.0, x) : x / scale;
        store(format.element, result.codes.data(), i, quotient, rounding, nullptr, 0, Overflow::saturate);
      }
    }
  return result;
}

}  // namespace halfmark::kernels
