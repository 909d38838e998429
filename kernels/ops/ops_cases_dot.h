// Cases of the dot products of matrix instructions: small integers, whose sums every instruction must get exactly. What
// the instructions do with other numbers is the business of their models (kernels/sim).
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/ops_cases.h"

namespace halfmark::ops_cases {

struct DotCase {
  DType a, b, c, out;
  DType scale = DType::f32;  // with a block of 0: none
  int block = 0;
};

inline std::vector<DotCase> dot_cases() {
  using enum DType;
  std::vector<DotCase> all{{f16, f16, f32, f32},
                           {f16, f16, f16, f16},
                           {f16, f16, f16, f32},
                           {bf16, bf16, f32, f32},
                           {f32, f32, f32, f32},
                           {f64, f64, f64, f64},
                           {e2m1, e2m1, f32, f32, e8m0, 32},
                           {e2m1, e2m1, f32, f32, e8m0, 16},
                           {e2m1, e2m1, f32, f32, e4m3, 16}};
  for (const DType a : {e4m3, e5m2})
    for (const DType b : {e4m3, e5m2}) {
      for (const DType sum : {f32, f16}) all.push_back({a, b, sum, sum});
      all.push_back({a, b, f32, f32, e8m0, 32});
    }
  return all;
}

template <>
inline void cases<DotProducts>(const Bench& bench, const Try<DotProducts>& attempt) {
  const int64_t n = 9;
  for (const DotCase& types : dot_cases())
    for (const MatrixInstructionRow& instruction : matrix_instructions()) {
      const int64_t k = 2 * instruction.k;
      if (types.block && k % types.block) continue;
      const auto operand = [&](DType dtype, uint64_t seed) {
        return random_tensor(bench, {n, k}, dtype, Layout::plain, seed, Fill::integers);
      };
      const Tensor a = operand(types.a, 1), b = operand(types.b, 2);
      const Tensor c = random_tensor(bench, {n}, types.c, Layout::plain, 3, Fill::integers);
      Tensor scale_a, scale_b;
      if (types.block) {
        // 2 and 1 in turn: the scaled sums stay integers.
        std::vector<double> two_one(static_cast<size_t>(n * k / types.block), 1.0);
        for (size_t i = 0; i < two_one.size(); i += 2) two_one[i] = 2;
        scale_a = Tensor::from(bench.device, {n, k / types.block}, types.scale, two_one);
        scale_b = Tensor::from(bench.device, {n, k / types.block}, types.scale, std::vector<double>(two_one.size(), 1));
      }
      Tensor out(bench.device, {n}, types.out);
      const DotProducts op{.a = a,
                           .b = b,
                           .scale_a = scale_a,
                           .scale_b = scale_b,
                           .c = c,
                           .out = out,
                           .instruction = instruction.instruction};
      const std::string name = std::string(instruction.name) + " " + dtypes_of(op);
      attempt(name, op, [&] {
        const std::vector<double> av = a.values(), bv = b.values(), cv = c.values();
        const std::vector<double> sa = types.block ? scale_a.values() : std::vector<double>();
        std::vector<double> expected = cv;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t l = 0; l < k; ++l) {
            const auto at = static_cast<size_t>(i * k + l);
            const double scale = types.block ? sa[at / static_cast<size_t>(types.block)] : 1;
            expected[static_cast<size_t>(i)] += scale * av[at] * bv[at];
          }
        expect_exact(out, expected, name);
      });
    }
}

struct ScaledCase {
  std::string_view a, b;  // block formats
  DType out;
};

template <>
inline void cases<ScaledMatmul>(const Bench& bench, const Try<ScaledMatmul>& attempt) {
  struct Size {
    int64_t m, n, k;
  };
  using enum DType;
  for (const ScaledCase& types :
       {ScaledCase{"mxfp8-e4m3", "mxfp8-e4m3", f32}, ScaledCase{"mxfp8-e4m3", "mxfp8-e5m2", f32},
        ScaledCase{"mxfp8-e5m2", "mxfp8-e5m2", bf16}, ScaledCase{"mxfp4", "mxfp4", f32},
        ScaledCase{"nvfp4", "nvfp4", f32}, ScaledCase{"nvfp4", "nvfp4", f16}})
    for (const Size size : {Size{5, 7, 32}, Size{3, 9, 160}, Size{17, 2, 320}}) {
      const auto quantised = [&](std::string_view format, int64_t rows, uint64_t seed) {
        const std::vector<double> values = random_values(rows * size.k, seed);
        const std::vector<float> narrow(values.begin(), values.end());
        return to_scaled(bench.device, block_format_named(format), narrow, rows, size.k);
      };
      const Scaled a = quantised(types.a, size.m, 1), b = quantised(types.b, size.n, 2);
      Tensor out(bench.device, {size.m, size.n}, types.out);
      const std::string name = std::string(types.a) + " " + std::string(types.b) + " m" + std::to_string(size.m) +
                               " n" + std::to_string(size.n) + " k" + std::to_string(size.k);
      attempt(name, ScaledMatmul{.a = a, .b = b, .out = out}, [&] {
        const std::vector<double> av = a.values(), bv = b.values();
        std::vector<double> expected, slack;
        for (int64_t i = 0; i < size.m; ++i)
          for (int64_t j = 0; j < size.n; ++j) {
            double value = 0, magnitude = 0;
            for (int64_t l = 0; l < size.k; ++l) {
              const double product = av[static_cast<size_t>(i * size.k + l)] * bv[static_cast<size_t>(j * size.k + l)];
              value += product, magnitude += std::fabs(product);
            }
            // One step more than the terms: the factor of the tensors' scales is rounded to fp32.
            expected.push_back(value);
            slack.push_back(gamma(static_cast<double>(size.k) + 1, kFp32) * magnitude);
          }
        expect_close(out, expected, slack, name);
      });
    }
}

}  // namespace halfmark::ops_cases
