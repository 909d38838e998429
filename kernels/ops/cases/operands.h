// Operands of the cases and the errors that their sums may have.
//
// Tolerances are derived, never tuned. Let u be the unit roundoff of a format, n the number of rounded steps and S the
// sum of the magnitudes of the inputs. A computed sum differs from the exact one by at most gamma(n) S in any order,
// with gamma(n) = n 2u / (1 - n 2u) (Higham, Accuracy and Stability, 2002, lemma 3.1). 2u replaces u because tensor
// cores truncate where others round. Underflow adds n smallest subnormals. Storing adds the unit roundoff of the
// output's format and half its smallest subnormal.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/cases/cases.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels::ops_cases {

inline double gamma(double steps, const Format& format) {
  const double nu = steps * 2 * format.unit_roundoff();
  return nu < 1 ? nu / (1 - nu) : HUGE_VAL;
}
inline double smallest(const Format& format) { return std::ldexp(1.0, format.min_subnormal_exponent()); }

// The format that operations other than sums of products compute in.
inline const Format& wide_format(DType dtype) { return dtype == DType::f64 ? kFp64 : kFp32; }
inline DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// integers: -2 .. 2, so that sums are exact. sparse_integers: a quarter of the values are such integers, the others are
// 0, so that long sums of products are exact in narrow formats.
enum class Fill { normal, integers, sparse_integers };

inline std::vector<double> random_values(int64_t count, uint64_t seed, Fill fill = Fill::normal, double scale = 1) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  const auto value = [&](size_t i) {
    if (fill == Fill::normal) return key.normal(i);
    if (fill == Fill::integers) return static_cast<double>(key.below(i, 5)) - 2;
    constexpr double kSparse[] = {-2, -1, 1, 2};
    const uint64_t draw = key.below(i, 16);
    return draw < 4 ? kSparse[draw] : 0;
  };
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * value(i);
  return values;
}

// A tensor with the result of `values()`, which is not called if values do not matter.
inline Tensor filled_tensor(const CaseRequest& request, const Shape& shape, DType dtype, Layout layout,
                            const std::function<std::vector<double>()>& values) {
  if (!request.filled) return Tensor(request.device, shape, dtype, layout);
  return Tensor::from(request.device, shape, dtype, values(), layout);
}

inline Tensor random_tensor(const CaseRequest& request, const Shape& shape, DType dtype, Layout layout, uint64_t seed,
                            Fill fill = Fill::normal, double scale = 1) {
  return filled_tensor(request, shape, dtype, layout,
                       [&] { return random_values(shape.elements(), seed, fill, scale); });
}

inline Tensor positive_tensor(const CaseRequest& request, const Shape& shape, DType dtype, uint64_t seed) {
  return filled_tensor(request, shape, dtype, Layout::plain, [&] {
    std::vector<double> values = random_values(shape.elements(), seed);
    for (double& value : values) value = 0.25 + std::fabs(value);
    return values;
  });
}

// A tensor in a layout of the device's own library: the result
// of a convolution that may choose. Empty if it chooses none.
inline std::optional<Tensor> opaque_tensor(const CaseRequest& request, const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor x = random_tensor(request, shape, dtype, Layout::plain, seed);
  const Tensor w = random_tensor(request, {shape[1], shape[1], 1, 1}, dtype, Layout::plain, seed + 1);
  Tensor out(request.device, shape, dtype, Layout::any);
  const Format& format = wide_format(dtype);
  run(Conv2d{.x = x,
             .w = w,
             .out = out,
             .window = {},
             .groups = 1,
             .math = {.multiply = format, .accumulate = format, .partial = format}});
  if (out.layout() != Layout::opaque) return std::nullopt;
  return out;
}

inline std::string text_of(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += '-';
    text += name_of(dtype);
  }
  return text;
}

}  // namespace halfmark::kernels::ops_cases
