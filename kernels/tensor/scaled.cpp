#include "kernels/tensor/scaled.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels {

int64_t Scaled::block() const {
  if (transposed) return tile_rows;
  return tile_depth != 0 || scales.empty() ? tile_depth : codes.shape()[1] / scales.shape()[1];
}

size_t Scaled::tile_of(int64_t row, int64_t k) const {
  const int64_t stored_row = transposed ? k : row, stored_k = transposed ? row : k;
  const int64_t depth_of_tile = tile_depth != 0 ? tile_depth : codes.shape()[1] / scales.shape()[1];
  return static_cast<size_t>(stored_row / tile_rows * scales.shape()[1] + stored_k / depth_of_tile);
}

float Scaled::tensor_factor() const {
  return tensor_scale.empty() ? 1.0F : static_cast<float>(tensor_scale.values()[0]);
}

std::vector<double> Scaled::values() const {
  const std::vector<double> stored = codes.values();
  const std::vector<double> by = scales.empty() ? std::vector<double>() : scales.values();
  const double factor = static_cast<double>(tensor_factor()) / static_cast<double>(divisor);
  std::vector<double> all;
  all.reserve(stored.size());
  for (int64_t row = 0; row < rows(); ++row)
    for (int64_t k = 0; k < depth(); ++k) {
      const auto at = static_cast<size_t>(transposed ? k * rows() + row : row * depth() + k);
      all.push_back(stored[at] * (by.empty() ? 1 : std::fabs(by[tile_of(row, k)])) * factor);
    }
  return all;
}

Scaled to_scaled(Device& device, const BlockFormat& format, std::span<const float> values, int64_t rows, int64_t k) {
  const auto block = static_cast<int64_t>(format.block);
  HM_CHECK(k % block == 0, std::string(format.name) + " has one scale per " + std::to_string(block) + " numbers; " +
                               std::to_string(k) + " is not a multiple of that");
  const BlockScaled quantised = quantize(format, values, static_cast<size_t>(rows), static_cast<size_t>(k));
  Scaled result{.codes = Tensor(device, {rows, k}, format.element),
                .scales = Tensor(device, {rows, k / block}, format.scale),
                .tile_depth = block};
  result.codes.set_codes(quantised.codes);
  result.scales.set_codes(quantised.scales);
  if (format.tensor_scale) {
    const double scale = static_cast<double>(quantised.tensor_scale);
    result.tensor_scale = Tensor::from(device, {1}, DType::f32, std::span(&scale, 1));
  }
  return result;
}

}  // namespace halfmark::kernels
