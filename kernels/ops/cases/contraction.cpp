// Cases of matmul and the convolutions. The fp64 loops are written from the formulas in operations/contraction.h and share
// nothing with the kernels.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/contraction.h"
#include "kernels/ops/cases/convolution.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<Matmul>::each(const CaseRequest& request, const RunCase<Matmul>& run_case) {
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

template <>
void Cases<Conv2d>::each(const CaseRequest& request, const RunCase<Conv2d>& run_case) {
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
void Cases<Conv2dBackwardData>::each(const CaseRequest& request, const RunCase<Conv2dBackwardData>& run_case) {
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
void Cases<Conv2dBackwardWeights>::each(const CaseRequest& request, const RunCase<Conv2dBackwardWeights>& run_case) {
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
