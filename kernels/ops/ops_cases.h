// The frame of ops_test.cpp: tensors with known values, what fp64 says of an operation, and how far a row may be from
// it.
//
// Tolerances are derived, never tuned. With u the unit roundoff of a format, n the number of rounded steps and S the
// sum of the magnitudes that went in, a computed sum differs from the exact one by at most gamma(n) S, gamma(n) = n 2u
// / (1 - n 2u) (Higham, Accuracy and Stability, 2002, lemma 3.1), in any order; 2u instead of u because tensor cores
// cut where others round. What underflows adds n smallest subnormals. Storing adds the unit roundoff of the output's
// format and half its smallest subnormal.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::ops_cases {

// What a test sees of the row it tries. `strict`: our own rows, which do exactly what Math says; hardware may, say, cut
// fp32 operands to tf32 where Math says that they are rounded.
struct Bench {
  Device& device;
  bool strict = true;
};

// A case hands over an operation on fresh tensors and a check to be made once it has run.
template <class Op>
using Try = std::function<void(const std::string& name, const Op& op, const std::function<void()>& check)>;

// Every case of an operation; specialised in the other headers.
template <class Op>
void cases(const Bench& bench, const Try<Op>& attempt);

enum class Fill { normal, integers };  // integers: -2 .. 2, so that sums are exact

inline std::vector<double> random_values(int64_t count, uint64_t seed, Fill fill = Fill::normal, double scale = 1) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = scale * (fill == Fill::normal ? key.normal(i) : static_cast<double>(key.below(i, 5)) - 2);
  return values;
}

inline Tensor random_tensor(const Bench& bench, const Shape& shape, DType dtype, Layout layout, uint64_t seed,
                            Fill fill = Fill::normal, double scale = 1) {
  return Tensor::from(bench.device, shape, dtype, random_values(shape.elements(), seed, fill, scale), layout);
}

// A tensor in a layout of the device's own library: the result of a convolution that may choose. Nothing if it chooses
// none.
inline std::optional<Tensor> opaque_tensor(const Bench& bench, const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor x = random_tensor(bench, shape, dtype, Layout::plain, seed);
  const Tensor w = random_tensor(bench, {shape[1], shape[1], 1, 1}, dtype, Layout::plain, seed + 1);
  Tensor out(bench.device, shape, dtype, Layout::any);
  const Format& format = dtype == DType::f64 ? kFp64 : kFp32;
  run(Conv2d{.x = x,
             .w = w,
             .out = out,
             .window = {},
             .groups = 1,
             .math = {.multiply = format, .accumulate = format, .partial = format}});
  if (out.layout() != Layout::opaque) return std::nullopt;
  return out;
}

inline double gamma(double steps, const Format& format) {
  const double nu = steps * 2 * format.unit_roundoff();
  return nu < 1 ? nu / (1 - nu) : HUGE_VAL;
}
inline double smallest(const Format& format) { return std::ldexp(1.0, format.min_subnormal_exponent()); }

// What operations other than sums of products compute in.
inline const Format& wide_format(DType dtype) { return dtype == DType::f64 ? kFp64 : kFp32; }

// Compares a tensor with fp64: |actual - expected| <= slack, plus what storing costs. A slack of exactly 0 asks for the
// correctly rounded value.
inline void expect_close(const Tensor& actual, const std::vector<double>& expected, const std::vector<double>& slack,
                         const std::string& what) {
  const std::vector<double> values = actual.values();
  ASSERT_EQ(values.size(), expected.size()) << what;
  const Format& format = format_of(actual.dtype());
  int shown = 0;
  for (size_t i = 0; i < values.size() && shown < 3; ++i) {
    const double rounded = round_to(format, expected[i]);
    if (slack[i] == 0) {
      if (values[i] == rounded || (std::isnan(values[i]) && std::isnan(rounded))) continue;
    } else {
      const double bound =
          slack[i] + format.unit_roundoff() * (std::fabs(expected[i]) + slack[i]) + smallest(format) / 2;
      if (std::fabs(values[i] - expected[i]) <= bound) continue;
    }
    ++shown;
    ADD_FAILURE() << what << ": element " << i << " of " << actual.shape().text() << " " << name_of(actual.dtype())
                  << " is " << values[i] << ", fp64 says " << expected[i] << " within " << slack[i];
  }
}

inline void expect_exact(const Tensor& actual, const std::vector<double>& expected, const std::string& what) {
  expect_close(actual, expected, std::vector<double>(expected.size(), 0.0), what);
}

inline std::string text_of(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += '-';
    text += name_of(dtype);
  }
  return text;
}

}  // namespace halfmark::ops_cases
