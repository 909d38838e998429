#include "accuracy/lint_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace halfmark::accuracy {
namespace {
using Numbers = std::vector<double>;
}

bool is_finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

double norm_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double median_of_values(Numbers values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double cosine_of_differences(const Numbers& a, const Numbers& b, const Numbers& c) {
  double product = 0, left = 0, right = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    product += (a[i] - c[i]) * (b[i] - c[i]);
    left += (a[i] - c[i]) * (a[i] - c[i]), right += (b[i] - c[i]) * (b[i] - c[i]);
  }
  return left > 0 && right > 0 ? product / std::sqrt(left * right) : 0;
}

double distance_over_norm(const Numbers& a, const Numbers& b) {
  Numbers difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm_of(difference) / norm_of(b);
}

std::optional<NonFiniteTensor> nonfinite_in(const std::string& name, const Tensor& tensor) {
  const Numbers values = tensor.values();
  if (is_finite(values)) return {};
  NonFiniteTensor found{.name = name, .whole_rows = true};
  const auto width = static_cast<size_t>(tensor.shape()[tensor.shape().rank() - 1]);
  for (size_t i = 0; i < values.size(); ++i) {
    found.nan += std::isnan(values[i]), found.infinite += std::isinf(values[i]);
    found.whole_rows = found.whole_rows && std::isnan(values[i]) == std::isnan(values[i / width * width]);
  }
  found.nan /= static_cast<double>(values.size()), found.infinite /= static_cast<double>(values.size());
  return found;
}

}  // namespace halfmark::accuracy
