// What the cases of element-wise operations share.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/number/convert.h"
#include "kernels/ops/cases/image.h"

namespace halfmark::kernels::ops_cases {

// Images of every layout, and matrices. f(name, make, shape, out_layout); `several` as in each_image().
inline void each_tensor(const CaseRequest& request, auto&& f, bool several = false) {
  const auto each_size = [&](const std::string& image, auto make, Layout out_layout) {
    for (const Shape& shape : request.axes.elements) f(image + " " + shape.text(), make, shape, out_layout);
  };
  each_image(request, request.axes.dtypes, each_size, several);
  for (const DType dtype : request.axes.dtypes)
    for (const Shape& matrix : request.axes.matrices)
      f(
          std::string(name_of(dtype)) + " matrix",
          [&request, dtype](const Shape& shape, uint64_t seed) {
            return random_tensor(request, shape, dtype, Layout::plain, seed);
          },
          matrix, Layout::plain);
}

inline std::vector<double> sums_slack(const std::vector<double>& a, const std::vector<double>& b,
                                      const Format& format) {
  std::vector<double> slack(a.size());
  for (size_t i = 0; i < a.size(); ++i)
    slack[i] = std::isfinite(a[i] + b[i]) ? gamma(1, format) * std::fabs(a[i] + b[i]) : 0;
  return slack;
}

// Puts zeros, infinities, NaN, subnormals and the ends of the range among the values, except in the last element: if it
// is never written, it must not pass for an expected NaN.
inline void sprinkle_special_values(const Tensor& tensor, size_t first) {
  if (tensor.layout() == Layout::opaque) return;  // a library made it, with its padding
  const Format& format = format_of(tensor.dtype());
  const double tiny = smallest(format), huge = format.max_finite();
  const double specials[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN), tiny, -tiny, huge, -huge};
  std::vector<double> values = tensor.values();
  for (size_t k = 0; k < std::size(specials) && first + 5 * k + 1 < values.size(); ++k)
    values[first + 5 * k] = specials[k];
  Tensor(tensor).set_values(values);
}

}  // namespace halfmark::kernels::ops_cases
