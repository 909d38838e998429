// Cases of softmax and batched products. The fp64 loops are written from the definitions in operations/sequence.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/softmax.h"

namespace halfmark::kernels::ops_cases {

namespace {

std::vector<Shape> row_shapes(const CaseRequest& request) {
  if (!request.axes.norm_forms) return {request.axes.single.softmax};
  return {Shape{3, 5}, Shape{2, 3, 17}, Shape{1, 1}, Shape{4, 64}, Shape{2, 33}};
}

// Rows of one number more than whole vectors have.
bool far_last(const Shape& shape) { return shape[shape.rank() - 1] == 33; }

double far_from_others(DType dtype) { return dtype == DType::f64 ? 800 : 200; }

struct RowCase {
  std::vector<double> y, slack;  // probabilities
  std::vector<double> logs, log_slack;
  RowCase(const std::vector<double>& x, int64_t width, const Format& format)
      : y(x.size()), slack(x.size()), logs(x.size()), log_slack(x.size()) {
    for (size_t row = 0; row < x.size(); row += at(width)) {
      double largest = -HUGE_VAL, sum = 0, error = 0;
      for (size_t i = row; i < row + at(width); ++i) largest = std::max(largest, x[i]);
      for (size_t i = row; i < row + at(width); ++i) {
        const double e = std::exp(x[i] - largest);
        sum += e, error += e == 0 ? 0 : e * exp_error(x[i] - largest, format);
      }
      const double relative = error / sum + gamma(static_cast<double>(width) + 2, format);
      for (size_t i = row; i < row + at(width); ++i) {
        const double down = x[i] - largest;
        y[i] = std::exp(down) / sum, slack[i] = y[i] * (exp_error(down, format) + relative) + smallest(format);
        logs[i] = down - std::log(sum);
        log_slack[i] = relative + gamma(4, format) * (std::fabs(down) + std::fabs(std::log(sum)) + 1);
      }
    }
  }
};

}  // namespace

template <>
void Cases<Softmax>::each(const CaseRequest& request, const RunCase<Softmax>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const Shape& shape : row_shapes(request))
      for (const char* form : {"", " log", " causal", " masked"}) {
        const bool log = form == std::string(" log"), causal = form == std::string(" causal"),
                   masked = form == std::string(" masked");
        if ((*form && !request.axes.norm_forms) || (masked && !has_infinity(dtype))) continue;
        const Tensor x = filled_tensor(request, shape, dtype, Layout::plain, [&] {
          std::vector<double> values = random_values(shape.elements(), 1);
          // The last value is so much larger that its exponential is infinite unless it is found as the largest.
          if (far_last(shape)) {
            const int64_t width = shape[shape.rank() - 1];
            for (int64_t i = width - 1; i < shape.elements(); i += width) values[at(i)] = far_from_others(dtype);
          }
          // The first row attends to nothing, others not to every fifth value.
          for (int64_t i = 0; masked && i < shape.elements(); ++i)
            if (i < shape[shape.rank() - 1] || i % 5 == 3) values[at(i)] = -HUGE_VAL;
          return values;
        });
        Tensor out(request.device, shape, dtype, log ? Layout::plain : Layout::any);
        run_case(type + " " + shape.text() + form,
                 Softmax{.x = x, .out = out, .log = log, .causal = causal, .masked = masked}, [&](CaseResult& result) {
                   const Format& format = wide_format(x.dtype());
                   std::vector<double> xv = x.values();
                   const int64_t width = shape[shape.rank() - 1], rows = shape[shape.rank() - 2];
                   for (int64_t i = 0; causal && i < shape.elements(); ++i)
                     if (i % width > i / width % rows) xv[at(i)] = -HUGE_VAL;
                   RowCase expected(xv, width, format);
                   for (int64_t i = 0; masked && i < width; ++i) expected.y[at(i)] = 0;
                   std::vector<double> slack = log ? expected.log_slack : expected.slack;
                   for (size_t i = 0; i < slack.size(); ++i)
                     if (std::isinf(xv[i]) || (masked && i < at(width))) slack[i] = 0;
                   result.expect_close(out, log ? expected.logs : expected.y, slack);
                 });
      }
  });
}

template <>
void Cases<Scale>::each(const CaseRequest& request, const RunCase<Scale>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const double factor : {0.35355339059327373, -3.0}) {
      if (factor < 0 && !request.axes.norm_forms) continue;
      const Shape shape = request.axes.norm_forms ? Shape{3, 7} : request.axes.single.scale;
      const Tensor x = random_tensor(request, shape, dtype, Layout::plain, 1);
      Tensor out(request.device, shape, dtype, Layout::any);
      run_case(type + " by " + std::to_string(factor), Scale{.x = x, .out = out, .factor = factor},
               [&](CaseResult& result) {
                 std::vector<double> expected = x.values(), slack;
                 for (double& value : expected) {
                   value *= factor;
                   slack.push_back(gamma(2, wide_format(x.dtype())) * std::fabs(value));
                 }
                 result.expect_close(out, expected, slack);
               });
    }
  });
}

template <>
void Cases<SoftmaxBackward>::each(const CaseRequest& request, const RunCase<SoftmaxBackward>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const Shape& shape : row_shapes(request))
      for (const bool log : {false, true}) {
        if (log && !request.axes.norm_forms) continue;
        const auto width = shape[shape.rank() - 1];
        const Tensor y = filled_tensor(request, shape, dtype, Layout::plain, [&] {
          const RowCase rows(random_values(shape.elements(), 1), width, kFp64);
          return log ? rows.logs : rows.y;
        });
        const Tensor dy = random_tensor(request, shape, dtype, Layout::plain, 2);
        Tensor dx(request.device, shape, dtype);
        run_case(type + " " + shape.text() + (log ? " log" : ""),
                 SoftmaxBackward{.y = y, .dy = dy, .dx = dx, .log = log}, [&](CaseResult& result) {
                   const Format& format = wide_format(y.dtype());
                   const std::vector<double> yv = y.values(), dv = dy.values();
                   std::vector<double> expected(yv.size()), slack(yv.size());
                   for (size_t row = 0; row < yv.size(); row += at(width)) {
                     double sum = 0, magnitude = 0;
                     for (size_t i = row; i < row + at(width); ++i) {
                       const double term = log ? dv[i] : dv[i] * yv[i];
                       sum += term, magnitude += std::fabs(term);
                     }
                     for (size_t i = row; i < row + at(width); ++i) {
                       const double p = log ? std::exp(yv[i]) : yv[i],
                                    g = gamma(static_cast<double>(width) + 8, format);
                       expected[i] = log ? dv[i] - p * sum : p * (dv[i] - sum);
                       slack[i] = g * (log ? std::fabs(dv[i]) + p * (2 + std::fabs(yv[i])) * magnitude
                                           : std::fabs(p) * (std::fabs(dv[i]) + magnitude)) +
                                  smallest(format);
                     }
                   }
                   result.expect_close(dx, expected, slack);
                 });
      }
  });
}

template <>
void Cases<BatchedMatmul>::each(const CaseRequest& request, const RunCase<BatchedMatmul>& run_case) {
  for (const ContractionTypes& types : request.axes.contractions) {
    for (const MatmulSize& size : request.axes.matmuls)
      for (const MatmulForm form : request.axes.matmul_forms) {
        if (form == MatmulForm::add_to_integers && request.axes.norm_forms) continue;
        const int64_t m = size.m, n = size.n, k = size.k, batch = 2;
        const bool ta = form == MatmulForm::transpose_a || form == MatmulForm::transpose_both,
                   tb = form == MatmulForm::transpose_b || form == MatmulForm::transpose_both;
        const Fill fill =
            meaningful_fill(form == MatmulForm::integers ? Fill::integers : Fill::normal, types, k, request.strict);
        const Tensor a =
            random_tensor(request, ta ? Shape{batch, k, m} : Shape{batch, m, k}, types.a, Layout::plain, 1, fill);
        const Tensor b =
            random_tensor(request, tb ? Shape{batch, n, k} : Shape{batch, k, n}, types.b, Layout::plain, 2, fill);
        Tensor out(request.device, {batch, m, n}, types.out, ta ? Layout::any : Layout::plain);
        const BatchedMatmul op{.a = a, .b = b, .out = out, .transpose_a = ta, .transpose_b = tb, .math = types.math};
        run_case(text_of({types.a, types.b, types.out}) + " " + types.note + " m" + std::to_string(m) + " n" +
                     std::to_string(n) + " k" + std::to_string(k) + " form " + std::to_string(static_cast<int>(form)),
                 op, [&](CaseResult& result) {
                   const std::vector<double> av = as_multiplied(a, types.math), bv = as_multiplied(b, types.math);
                   std::vector<Sum> sums;
                   for (int64_t i = 0; i < batch; ++i)
                     for (int64_t row = 0; row < m; ++row)
                       for (int64_t column = 0; column < n; ++column) {
                         Sum sum;
                         for (int64_t l = 0; l < k; ++l)
                           sum.add(av[at(i * m * k + (ta ? l * m + row : row * k + l))],
                                   bv[at(i * n * k + (tb ? column * k + l : l * n + column))]);
                         sums.push_back(sum);
                       }
                   expect_sums(result, out, sums, types, request);
                 });
      }
  }
}

}  // namespace halfmark::kernels::ops_cases
