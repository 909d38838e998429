// Cases of matmul and the convolutions. The fp64 loops are written from the formulas in ops.h and share nothing with
// the kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/ops_cases.h"

namespace halfmark::ops_cases {

struct Types {
  DType a, b, out;
  Math math;
  const char* note;
};

// What is stored, and how it is summed.
inline std::vector<Types> contraction_types() {
  using enum DType;
  const Math fp32{}, fp64{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  return {
      {f32, f32, f32, fp32, "fp32"},
      {f64, f64, f64, fp64, "fp64"},
      {f16, f16, f16, fp32, "fp32"},
      {f16, f16, f32, fp32, "fp32"},
      {bf16, bf16, bf16, fp32, "fp32"},
      {bf16, bf16, f32, fp32, "fp32"},
      {f16, f16, f16, {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, "fp16-sum"},
      {bf16, bf16, bf16, {.multiply = kBf16, .accumulate = kBf16, .partial = kBf16}, "bf16-sum"},
      {f32, f32, f32, {.multiply = kTf32}, "tf32"},
      {f32, f32, f32, {.multiply = kBf16}, "bf16-multiply"},
      {e4m3, e4m3, f32, fp32, "fp32"},
      {e4m3, e5m2, bf16, fp32, "fp32"},
      {e4m3, e4m3, f16, {.fast_accumulate = true}, "fp32-fast"},
      {f16, f32, f32, fp32, "mixed"},
      {f32, f32, f16, fp32, "narrow-out"},
      {f16, f16, f16, {.partial = kFp16, .split_k = 3}, "split3-fp16"},
      {f32, f32, f32, {.split_k = 2}, "split2"},
      {bf16, bf16, f32, {.partial = kBf16, .split_k = 4}, "split4-bf16"},
  };
}

// Collects one output's exact value and the sum of magnitudes.
struct Sum {
  double value = 0, magnitude = 0, terms = 0;
  void add(double a, double b) { value += a * b, magnitude += std::fabs(a * b), ++terms; }
};

// The operands as the products see them.
inline std::vector<double> as_multiplied(const Tensor& tensor, const Math& math) {
  std::vector<double> values = tensor.values();
  for (double& value : values) value = round_to(math.multiply, value);
  return values;
}

// The fewest bits a sum of fp8 products may have where fast accumulation is allowed: those of Hopper's fp8 wgmma
// (tensor-core models in kernels/sim).
inline constexpr Format kFastSum{"e8m13", 8, 13};

inline double slack_of(const Sum& sum, const Types& types, bool strict) {
  const Math& math = types.math;
  const Format& coarse = math.fast_accumulate ? kFastSum
                         : math.split_k > 1 && math.partial.fraction_bits < math.accumulate.fraction_bits
                             ? math.partial
                             : math.accumulate;
  // Integers whose every partial sum is a number of both formats are summed without error.
  const double exact_up_to = std::ldexp(1.0, coarse.fraction_bits + 1);
  const bool integers = std::floor(sum.magnitude) == sum.magnitude && sum.magnitude <= exact_up_to;
  if (integers) return 0;
  double slack = gamma(sum.terms + 2, math.fast_accumulate ? kFastSum : math.accumulate) * sum.magnitude +
                 sum.terms * smallest(math.accumulate);
  if (math.split_k > 1)
    slack += gamma(1, math.partial) * (sum.magnitude + slack) + math.split_k * smallest(math.partial);
  const int stored = std::max(format_of(types.a).fraction_bits, format_of(types.b).fraction_bits);
  if (!strict && math.multiply.fraction_bits < stored)
    slack += gamma(2, math.multiply) * sum.magnitude;  // cut, not rounded
  return slack;
}

inline void expect_sums(const Tensor& out, const std::vector<Sum>& sums, const Types& types, const Bench& bench,
                        const std::string& what) {
  std::vector<double> expected, slack;
  for (const Sum& sum : sums) expected.push_back(sum.value), slack.push_back(slack_of(sum, types, bench.strict));
  expect_close(out, expected, slack, what);
}

template <>
inline void cases<Matmul>(const Bench& bench, const Try<Matmul>& attempt) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Types& types : contraction_types())
    for (const Size size : {Size{5, 7, 13}, Size{32, 48, 64}, Size{1, 33, 40}})
      for (const int form : {0, 1, 2, 3, 4, 5}) {
        // 0..3: transposed operands; 4: beta of 1 on integers; 5: integers.
        const bool ta = form & 1 && form < 4, tb = form & 2 && form < 4;
        const Fill fill = form >= 4 ? Fill::integers : Fill::normal;
        const int64_t m = size.m, n = size.n, k = size.k;
        const Tensor a = random_tensor(bench, ta ? Shape{k, m} : Shape{m, k}, types.a, Layout::plain, 1, fill);
        const Tensor b = random_tensor(bench, tb ? Shape{n, k} : Shape{k, n}, types.b, Layout::plain, 2, fill);
        const double beta = form == 4 ? 1 : 0;
        Tensor out = beta != 0 ? random_tensor(bench, {m, n}, types.out, Layout::plain, 3, fill)
                               : Tensor(bench.device, {m, n}, types.out, form == 3 ? Layout::any : Layout::plain);
        const std::vector<double> before = beta != 0 ? out.values() : std::vector<double>();
        const Matmul op{
            .a = a, .b = b, .out = out, .transpose_a = ta, .transpose_b = tb, .math = types.math, .beta = beta};
        const std::string name = text_of({types.a, types.b, types.out}) + " " + types.note + " m" + std::to_string(m) +
                                 " n" + std::to_string(n) + " k" + std::to_string(k) + " form " + std::to_string(form);
        attempt(name, op, [&, ta, tb] {
          const std::vector<double> av = as_multiplied(a, types.math), bv = as_multiplied(b, types.math);
          std::vector<Sum> sums(static_cast<size_t>(m * n));
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              Sum& sum = sums[static_cast<size_t>(i * n + j)];
              for (int64_t l = 0; l < k; ++l)
                sum.add(av[static_cast<size_t>(ta ? l * m + i : i * k + l)],
                        bv[static_cast<size_t>(tb ? j * k + l : l * n + j)]);
              if (beta != 0) sum.add(beta, before[static_cast<size_t>(i * n + j)]);
            }
          expect_sums(out, sums, types, bench, name);
        });
      }
}

struct ConvSize {
  const char* note;
  Shape x, w;
  Window window;
  int groups;
};

inline std::vector<ConvSize> conv_sizes() {
  return {
      {"3x3 pad", {2, 3, 7, 6}, {5, 3, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1},
      {"3x2 strided dilated groups", {1, 4, 9, 8}, {6, 2, 3, 2}, {.stride_h = 2, .pad_h = 1, .dilation_h = 2}, 2},
      {"depthwise", {2, 6, 5, 5}, {6, 1, 3, 3}, {.pad_h = 1, .pad_w = 1}, 6},
      {"1x1 strided", {2, 8, 6, 5}, {16, 8, 1, 1}, {.stride_h = 2, .stride_w = 2}, 1},
      {"channels of 16", {2, 16, 8, 8}, {32, 16, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1},
      {"5x5 strided pad", {1, 3, 11, 9}, {8, 3, 5, 5}, {.stride_h = 2, .stride_w = 2, .pad_h = 2, .pad_w = 2}, 1},
  };
}

inline Shape result_shape(const ConvSize& size) {
  const auto& [note, x, w, s, groups] = size;
  return {x[0], w[0], window_extent(x[2], w[2], s.stride_h, s.pad_h, s.dilation_h),
          window_extent(x[3], w[3], s.stride_w, s.pad_w, s.dilation_w)};
}

// f(element of x, element of w, element of y) for every product of a convolution, all in logical order.
inline void each_product(const ConvSize& size, auto&& f) {
  const auto& [note, x, w, s, groups] = size;
  const Shape y = result_shape(size);
  const int64_t per_group = w[0] / groups;
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t o = 0; o < w[0]; ++o)
      for (int64_t oy = 0; oy < y[2]; ++oy)
        for (int64_t ox = 0; ox < y[3]; ++ox)
          for (int64_t c = 0; c < w[1]; ++c)
            for (int64_t i = 0; i < w[2]; ++i)
              for (int64_t j = 0; j < w[3]; ++j) {
                const int64_t iy = oy * s.stride_h - s.pad_h + i * s.dilation_h,
                              ix = ox * s.stride_w - s.pad_w + j * s.dilation_w;
                if (iy < 0 || iy >= x[2] || ix < 0 || ix >= x[3]) continue;
                const int64_t channel = o / per_group * w[1] + c;
                f(static_cast<size_t>(((n * x[1] + channel) * x[2] + iy) * x[3] + ix),
                  static_cast<size_t>(((o * w[1] + c) * w[2] + i) * w[3] + j),
                  static_cast<size_t>(((n * y[1] + o) * y[2] + oy) * y[3] + ox));
              }
}

struct Layouts {
  Layout image, filter, out;
};
inline constexpr Layouts kLayouts[] = {
    {Layout::plain, Layout::plain, Layout::plain},
    {Layout::nhwc, Layout::nhwc, Layout::nhwc},
    {Layout::nhwc, Layout::plain, Layout::any},
    {Layout::plain, Layout::plain, Layout::any},
};

// f(name, size, types, layouts, filling) over all of the above; layouts other than the first only with some of the
// types.
inline void each_convolution(auto&& f) {
  const std::vector<Types> all = contraction_types();
  for (const ConvSize& size : conv_sizes())
    for (size_t t = 0; t < all.size(); ++t)
      for (size_t l = 0; l < std::size(kLayouts); ++l) {
        if (l > 0 && t > 4 && t % 3 != 0) continue;
        const Fill fill = l == 1 ? Fill::integers : Fill::normal;
        const std::string name = std::string(size.note) + " " + text_of({all[t].a, all[t].b, all[t].out}) + " " +
                                 all[t].note + " " + std::string(name_of(kLayouts[l].image)) + "-" +
                                 std::string(name_of(kLayouts[l].filter)) + "-" + std::string(name_of(kLayouts[l].out));
        f(name, size, all[t], kLayouts[l], fill);
      }
}

template <>
inline void cases<Conv2d>(const Bench& bench, const Try<Conv2d>& attempt) {
  each_convolution([&](const std::string& name, const ConvSize& size, const Types& types, const Layouts& layouts,
                       Fill fill) {
    const Tensor x = random_tensor(bench, size.x, types.a, layouts.image, 1, fill);
    const Tensor w = random_tensor(bench, size.w, types.b, layouts.filter, 2, fill);
    Tensor out(bench.device, result_shape(size), types.out, layouts.out);
    attempt(name, Conv2d{.x = x, .w = w, .out = out, .window = size.window, .groups = size.groups, .math = types.math},
            [&] {
              const std::vector<double> xv = as_multiplied(x, types.math), wv = as_multiplied(w, types.math);
              std::vector<Sum> sums(static_cast<size_t>(out.elements()));
              each_product(size, [&](size_t i, size_t j, size_t o) { sums[o].add(xv[i], wv[j]); });
              expect_sums(out, sums, types, bench, name);
            });
  });
}

template <>
inline void cases<Conv2dBackwardData>(const Bench& bench, const Try<Conv2dBackwardData>& attempt) {
  each_convolution(
      [&](const std::string& name, const ConvSize& size, const Types& types, const Layouts& layouts, Fill fill) {
        const Tensor dy = random_tensor(bench, result_shape(size), types.a, layouts.image, 1, fill);
        const Tensor w = random_tensor(bench, size.w, types.b, layouts.filter, 2, fill);
        Tensor dx(bench.device, size.x, types.out, layouts.out);
        attempt(name,
                Conv2dBackwardData{
                    .dy = dy, .w = w, .dx = dx, .window = size.window, .groups = size.groups, .math = types.math},
                [&] {
                  const std::vector<double> yv = as_multiplied(dy, types.math), wv = as_multiplied(w, types.math);
                  std::vector<Sum> sums(static_cast<size_t>(dx.elements()));
                  each_product(size, [&](size_t i, size_t j, size_t o) { sums[i].add(yv[o], wv[j]); });
                  expect_sums(dx, sums, types, bench, name);
                });
      });
}

template <>
inline void cases<Conv2dBackwardWeights>(const Bench& bench, const Try<Conv2dBackwardWeights>& attempt) {
  each_convolution(
      [&](const std::string& name, const ConvSize& size, const Types& types, const Layouts& layouts, Fill fill) {
        const Tensor x = random_tensor(bench, size.x, types.a, layouts.image, 1, fill);
        const Tensor dy = random_tensor(bench, result_shape(size), types.b, layouts.image, 2, fill);
        Tensor dw(bench.device, size.w, types.out, layouts.out);
        attempt(name,
                Conv2dBackwardWeights{
                    .x = x, .dy = dy, .dw = dw, .window = size.window, .groups = size.groups, .math = types.math},
                [&] {
                  const std::vector<double> xv = as_multiplied(x, types.math), yv = as_multiplied(dy, types.math);
                  std::vector<Sum> sums(static_cast<size_t>(dw.elements()));
                  each_product(size, [&](size_t i, size_t j, size_t o) { sums[j].add(xv[i], yv[o]); });
                  expect_sums(dw, sums, types, bench, name);
                });
      });
}

}  // namespace halfmark::ops_cases
