// What the tests of quantised linear layers share: matrices, and one step of the products alone.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/layers/quantized_linear.h"
#include "models/namespaces.h"
#include "models/trial_testing.h"

namespace halfmark::models {

inline constexpr const char* kRecipes[] = {"fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"};

// A policy like that of a recipe with another description.
inline Policy with_products(const QuantizedProducts& products) {
  Policy policy = policy_named("fp8-current");
  policy.products = &products;
  return policy;
}

struct Matrix {
  size_t rows, columns;
  std::vector<double> values;
  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  Matrix turned() const {
    Matrix other{columns, rows, values};
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) other.values[j * rows + i] = at(i, j);
    return other;
  }
  Tensor tensor(DType dtype) const {
    const Shape shape{static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
    return Tensor::from(*test_device(), shape, dtype, values);
  }
};

// Of magnitudes that differ from row to row and from column to column, so that a scale in a wrong place shows. Multiples of a
// power of two, so that fp32 sums of 16 are exact; weights have more digits than bf16.
// `is_wide`: 18 binades along rows and along columns, beyond those of e4m3, so that a copy with the scales of the other axis has
// other values even if scales are powers of two.
inline Matrix drawn(size_t rows, size_t columns, uint64_t seed, const Format& format, bool is_wide = false) {
  const RandomKey key(seed);
  Matrix m{rows, columns, std::vector<double>(rows * columns)};
  for (size_t i = 0; i < m.values.size(); ++i) {
    const int row = static_cast<int>(i / columns), column = static_cast<int>(i % columns);
    if (is_wide) {
      m.values[i] = round_to(format, std::ldexp(key.normal(i), 6 * (row % 4) - 6 * (column % 4)));
      continue;
    }
    const double grid = format == kFp32 ? 0x1p-14 : 0x1p-8;
    m.values[i] = round_to(format, std::round(std::ldexp(key.normal(i), row % 5 - column / 16 % 4) / grid) * grid);
  }
  return m;
}

struct Step {
  Tensor y, dx, dw;
  std::map<std::string, QuantizedOnce> log;  // "x forward"
};

// One forward and backward of the products alone.
inline Step step_of(QuantizedLinear& layer, const Policy& policy, const Tensor& x, const Tensor& w, const Tensor& dy,
                    uint64_t key = 3) {
  Step step;
  QuantizationLog log;
  Saved saved;
  {
    Pass pass(*test_device(), policy, true, RandomKey(key));
    step.y = layer.forward(pass, "fc", x, w, &saved);
  }
  {
    Pass pass(*test_device(), policy, true, RandomKey(key).child("backward"));
    step.dx = layer.backward(pass, "fc", dy, saved, [&](const auto& compute) {
      step.dw = Tensor(*test_device(), w.shape(), DType::bf16);
      compute(step.dw);
    });
  }
  EXPECT_TRUE(saved.empty());
  for (const QuantizedOnce& one : log.entries()) {
    EXPECT_TRUE(step.log.emplace(one.operand + " " + one.product, one).second) << "quantised twice";
  }
  return step;
}

}  // namespace halfmark::models
