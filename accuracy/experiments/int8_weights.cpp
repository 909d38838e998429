#include "accuracy/experiments/int8_weights.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {
constexpr double kLargestCode = 127;
}

bool is_int8_weight(const Shape& shape) { return shape.rank() >= 2; }

int64_t int8_channels(const Shape& shape, Int8Scales scales) {
  switch (scales) {
    case Int8Scales::of_channels:
      return shape[0];
    case Int8Scales::of_tensor:
      return 1;
  }
  return 1;
}

std::vector<double> with_int8_values(std::span<const double> values, int64_t channels) {
  HM_CHECK(channels > 0 && values.size() % static_cast<size_t>(channels) == 0,
           std::to_string(values.size()) + " weights are not " + std::to_string(channels) + " equal channels");
  const size_t width = values.size() / static_cast<size_t>(channels);
  std::vector<double> left;
  left.reserve(values.size());
  for (size_t begin = 0; begin < values.size(); begin += width) {
    const auto channel = values.subspan(begin, width);
    double largest = 0;
    for (const double value : channel) {
      HM_CHECK(std::isfinite(value), "a weight that is not finite has no code in int8");
      largest = std::max(largest, std::fabs(value));
    }
    const auto scale = static_cast<double>(static_cast<float>(largest / kLargestCode));
    for (const double value : channel)
      left.push_back(scale > 0 ? scale * std::clamp(std::nearbyint(value / scale), -kLargestCode, kLargestCode)
                               : value);
  }
  return left;
}

}  // namespace halfmark::accuracy
