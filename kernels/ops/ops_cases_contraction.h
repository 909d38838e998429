// Cases of matmul and the convolutions. The fp64 loops are written
// from the formulas in ops.h and share nothing with the kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/ops_cases.h"

namespace halfmark::kernels::ops_cases {

// Collects one output's exact value and the sum of magnitudes.
struct Sum {
  double value = 0, magnitude = 0, terms = 0;
  void add(double a, double b) { value += a * b, magnitude += std::fabs(a * b), ++terms; }
};

// The operands as rounded for the products.
inline std::vector<double> as_multiplied(const Tensor& tensor, const Math& math) {
  std::vector<double> values = tensor.values();
  for (double& value : values) value = round_to(math.multiply, value);
  return values;
}

// The fewest bits a sum of fp8 products may have if fast accumulation is allowed: those of Hopper's fp8 wgmma
// (tensor-core models in kernels/sim).
inline constexpr Format kFastSum{"e8m13", 8, 13};

// Ada and Hopper add fp8 in such sums in any case, and without fast accumulation at most 128 products in each (Math).
inline bool may_have_few_bits(const ContractionTypes& types, bool strict) {
  const auto is_fp8 = [](DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; };
  return types.math.fast_accumulate || (!strict && is_fp8(types.a) && is_fp8(types.b));
}

inline double slack_of(const Sum& sum, const ContractionTypes& types, bool strict) {
  const Math& math = types.math;
  const bool few_bits = may_have_few_bits(types, strict);
  const Format& coarse = few_bits ? kFastSum
                         : math.split_k > 1 && math.partial.fraction_bits < math.accumulate.fraction_bits
                             ? math.partial
                             : math.accumulate;
  // Integers whose every partial sum is representable in both formats are summed without error.
  const double exact_up_to = std::ldexp(1.0, coarse.fraction_bits + 1);
  const bool integers = std::floor(sum.magnitude) == sum.magnitude && sum.magnitude <= exact_up_to;
  if (integers) return 0;
  double slack = gamma(sum.terms + 2, few_bits ? kFastSum : math.accumulate) * sum.magnitude +
                 sum.terms * smallest(math.accumulate);
  if (math.split_k > 1)
    slack += gamma(1, math.partial) * (sum.magnitude + slack) + math.split_k * smallest(math.partial);
  const int stored = std::max(format_of(types.a).fraction_bits, format_of(types.b).fraction_bits);
  if (!strict && math.multiply.fraction_bits < stored)
    slack += gamma(2, math.multiply) * sum.magnitude;  // truncated, not rounded
  return slack;
}

// The wanted values, or integers if the sum may have so many terms that the bound would allow every value.
inline Fill meaningful_fill(Fill wanted, const ContractionTypes& types, int64_t terms, bool strict) {
  const Format& format = may_have_few_bits(types, strict) ? kFastSum : types.math.accumulate;
  return gamma(static_cast<double>(terms) + 4, format) < 1 ? wanted : Fill::sparse_integers;
}

inline void expect_sums(CaseResult& result, const Tensor& out, const std::vector<Sum>& sums,
                        const ContractionTypes& types, const CaseRequest& request) {
  std::vector<double> expected, slack;
  for (const Sum& sum : sums) {
    expected.push_back(sum.value), slack.push_back(slack_of(sum, types, request.strict));
    const double underflow = sum.terms * (smallest(types.math.accumulate) + smallest(types.math.partial));
    if (slack.back() >= sum.magnitude && sum.magnitude > 2 * underflow)
      return result.add("error in the test: the bound allows 0 for a sum of " + std::to_string(sum.terms) +
                        " products");
  }
  result.expect_close(out, expected, slack);
}

template <>
inline void Cases<Matmul>::each(const CaseRequest& request, const RunCase<Matmul>& run_case) {
  for (const ContractionTypes& types : request.axes.contractions)
    for (const MatmulSize& size : request.axes.matmuls)
      for (const MatmulForm form : request.axes.matmul_forms) {
        const int64_t m = size.m, n = size.n, k = size.k;
        const bool ta = form == MatmulForm::transpose_a || form == MatmulForm::transpose_both,
                   tb = form == MatmulForm::transpose_b || form == MatmulForm::transpose_both,
                   adds = form == MatmulForm::add_to_integers;
        const Fill fill = meaningful_fill(adds || form == MatmulForm::integers ? Fill::integers : Fill::normal, types,
                                          k, request.strict);
        const Tensor a = random_tensor(request, ta ? Shape{k, m} : Shape{m, k}, types.a, Layout::plain, 1, fill);
        const Tensor b = random_tensor(request, tb ? Shape{n, k} : Shape{k, n}, types.b, Layout::plain, 2, fill);
        const bool open = form == MatmulForm::transpose_both;
        Tensor out = adds ? random_tensor(request, {m, n}, types.out, Layout::plain, 3, fill)
                          : Tensor(request.device, {m, n}, types.out, open ? Layout::any : Layout::plain);
        const double beta = adds ? 1 : 0;
        const Matmul op{
            .a = a, .b = b, .out = out, .transpose_a = ta, .transpose_b = tb, .math = types.math, .beta = beta};
        const std::string name = text_of({types.a, types.b, types.out}) + " " + types.note + " m" + std::to_string(m) +
                                 " n" + std::to_string(n) + " k" + std::to_string(k) + " form " +
                                 std::to_string(static_cast<int>(form));
        run_case(name, op, [&](CaseResult& result) {
          const std::vector<double> before = adds ? result.before(out) : std::vector<double>();
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
          expect_sums(result, out, sums, types, request);
        });
      }
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

// f(name, size, types, layouts, filling) over the axes.
inline void each_convolution(const Axes& axes, auto&& f) {
  for (const ConvSize& size : axes.convolutions)
    for (size_t t = 0; t < axes.contractions.size(); ++t)
      for (const ConvLayouts& layouts : axes.conv_layouts) {
        if (layouts.few_types && t > 4 && t % 3 != 0) continue;
        const ContractionTypes& types = axes.contractions[t];
        const Fill fill = layouts.out == Layout::nhwc ? Fill::integers : Fill::normal;
        const std::string name = std::string(size.note) + " " + text_of({types.a, types.b, types.out}) + " " +
                                 types.note + " " + std::string(name_of(layouts.image)) + "-" +
                                 std::string(name_of(layouts.filter)) + "-" + std::string(name_of(layouts.out));
        f(name, size, types, layouts, fill);
      }
}

template <>
inline void Cases<Conv2d>::each(const CaseRequest& request, const RunCase<Conv2d>& run_case) {
  each_convolution(request.axes, [&](const std::string& name, const ConvSize& size, const ContractionTypes& types,
                                     const ConvLayouts& layouts, Fill wanted) {
    const Fill fill = meaningful_fill(wanted, types, size.w[1] * size.w[2] * size.w[3], request.strict);
    const Tensor x = random_tensor(request, size.x, types.a, layouts.image, 1, fill);
    const Tensor w = random_tensor(request, size.w, types.b, layouts.filter, 2, fill);
    Tensor out(request.device, result_shape(size), types.out, layouts.out);
    run_case(name, Conv2d{.x = x, .w = w, .out = out, .window = size.window, .groups = size.groups, .math = types.math},
             [&](CaseResult& result) {
               const std::vector<double> xv = as_multiplied(x, types.math), wv = as_multiplied(w, types.math);
               std::vector<Sum> sums(static_cast<size_t>(out.elements()));
               each_product(size, [&](size_t i, size_t j, size_t o) { sums[o].add(xv[i], wv[j]); });
               expect_sums(result, out, sums, types, request);
             });
  });
}

template <>
inline void Cases<Conv2dBackwardData>::each(const CaseRequest& request, const RunCase<Conv2dBackwardData>& run_case) {
  each_convolution(request.axes, [&](const std::string& name, const ConvSize& size, const ContractionTypes& types,
                                     const ConvLayouts& layouts, Fill wanted) {
    const Fill fill = meaningful_fill(wanted, types, size.w[0] / size.groups * size.w[2] * size.w[3], request.strict);
    const Tensor dy = random_tensor(request, result_shape(size), types.a, layouts.image, 1, fill);
    const Tensor w = random_tensor(request, size.w, types.b, layouts.filter, 2, fill);
    Tensor dx(request.device, size.x, types.out, layouts.out);
    run_case(name,
             Conv2dBackwardData{
                 .dy = dy, .w = w, .dx = dx, .window = size.window, .groups = size.groups, .math = types.math},
             [&](CaseResult& result) {
               const std::vector<double> yv = as_multiplied(dy, types.math), wv = as_multiplied(w, types.math);
               std::vector<Sum> sums(static_cast<size_t>(dx.elements()));
               each_product(size, [&](size_t i, size_t j, size_t o) { sums[i].add(yv[o], wv[j]); });
               expect_sums(result, dx, sums, types, request);
             });
  });
}

template <>
inline void Cases<Conv2dBackwardWeights>::each(const CaseRequest& request,
                                               const RunCase<Conv2dBackwardWeights>& run_case) {
  each_convolution(request.axes, [&](const std::string& name, const ConvSize& size, const ContractionTypes& types,
                                     const ConvLayouts& layouts, Fill wanted) {
    const Shape y = result_shape(size);
    const Fill fill = meaningful_fill(wanted, types, y[0] * y[2] * y[3], request.strict);
    const Tensor x = random_tensor(request, size.x, types.a, layouts.image, 1, fill);
    const Tensor dy = random_tensor(request, result_shape(size), types.b, layouts.image, 2, fill);
    Tensor dw(request.device, size.w, types.out, layouts.out);
    run_case(name,
             Conv2dBackwardWeights{
                 .x = x, .dy = dy, .dw = dw, .window = size.window, .groups = size.groups, .math = types.math},
             [&](CaseResult& result) {
               const std::vector<double> xv = as_multiplied(x, types.math), yv = as_multiplied(dy, types.math);
               std::vector<Sum> sums(static_cast<size_t>(dw.elements()));
               each_product(size, [&](size_t i, size_t j, size_t o) { sums[j].add(xv[i], yv[o]); });
               expect_sums(result, dw, sums, types, request);
             });
  });
}

}  // namespace halfmark::kernels::ops_cases
