#include "kernels/tensor/scaled.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels {

std::vector<double> Scaled::values() const {
  std::vector<double> all = codes.values();
  const std::vector<double> by = scales.values();
  const size_t block = all.size() / std::max<size_t>(by.size(), 1);
  for (size_t i = 0; i < all.size(); ++i) all[i] *= std::fabs(by[i / block]) * static_cast<double>(tensor_scale);
  return all;
}

Scaled to_scaled(Device& device, const BlockFormat& format, std::span<const float> values, int64_t rows, int64_t k) {
  const auto block = static_cast<int64_t>(format.block);
  HM_CHECK(k % block == 0, std::string(format.name) + " has one scale per " + std::to_string(block) + " numbers; " +
                               std::to_string(k) + " is not a multiple of that");
  const BlockScaled quantised = quantize(format, values, static_cast<size_t>(rows), static_cast<size_t>(k));
  Scaled result{Tensor(device, {rows, k}, format.element), Tensor(device, {rows, k / block}, format.scale),
                quantised.tensor_scale};
  result.codes.set_codes(quantised.codes);
  result.scales.set_codes(quantised.scales);
  return result;
}

}  // namespace halfmark::kernels
