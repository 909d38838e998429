// Cases of products with bias and activation, and of their backward. One rounding is allowed for each output: a row that
// stores the product in the dtype of the result before it adds the bias is beyond the bounds.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/activations.h"
#include "kernels/ops/cases/contraction.h"

namespace halfmark::kernels::ops_cases {

namespace {

// The format of what follows the sums.
const Format& epilogue_format(const Math& math) { return math.accumulate == kFp64 ? kFp64 : kFp32; }

// Of a product before bias and activation. A library may have rounded it.
double fused_slack(const Sum& sum, const ContractionTypes& types, const CaseRequest& request) {
  const double slack = slack_of(sum, types, request.strict);
  if (!request.rounds_between || slack == 0) return slack;
  return slack + format_of(types.out).unit_roundoff() * (std::fabs(sum.value) + slack);
}

constexpr double kSteepestGelu = 1.13;  // the largest slope of GELU is 1.129, near x = 1.41

std::string fused_name(const ContractionTypes& types, const MatmulSize& size, FusedActivation activation,
                       bool transpose_a, bool transpose_b) {
  return text_of({types.a, types.b, types.out}) + " " + types.note + " m" + std::to_string(size.m) + " n" +
         std::to_string(size.n) + " k" + std::to_string(size.k) + " " + std::string(name_of(activation)) +
         (transpose_a ? " a^T" : "") + (transpose_b ? " b^T" : "");
}

// op(a) and op(b) as plain matrices [m, k] and [k, n].
struct Factors {
  std::vector<double> a, b;
  MatmulSize size;
  Factors(const Tensor& left, const Tensor& right, bool transpose_a, bool transpose_b, const MatmulSize& extents,
          auto&& values)
      : size(extents) {
    const std::vector<double> av = values(left), bv = values(right);
    for (int64_t i = 0; i < size.m; ++i)
      for (int64_t l = 0; l < size.k; ++l)
        a.push_back(av[static_cast<size_t>(transpose_a ? l * size.m + i : i * size.k + l)]);
    for (int64_t l = 0; l < size.k; ++l)
      for (int64_t j = 0; j < size.n; ++j)
        b.push_back(bv[static_cast<size_t>(transpose_b ? j * size.k + l : l * size.n + j)]);
  }
  Sum sum(int64_t i, int64_t j) const {
    Sum sum;
    for (int64_t l = 0; l < size.k; ++l)
      sum.add(a[static_cast<size_t>(i * size.k + l)], b[static_cast<size_t>(l * size.n + j)]);
    return sum;
  }
};

bool mask_bit(const std::vector<double>& mask, int64_t row, int64_t column, int64_t columns) {
  const auto byte = static_cast<int>(mask[static_cast<size_t>(row * relu_mask_bytes(columns) + column / 8)]);
  return (byte >> (column % 8) & 1) != 0;
}

}  // namespace

template <>
void Cases<FusedMatmul>::each(const CaseRequest& request, const RunCase<FusedMatmul>& run_case) {
  for (const ContractionTypes& types : request.axes.contractions)
    for (const MatmulSize& size : request.axes.matmuls)
      for (const FusedForm& form : request.axes.fused) {
        const int64_t m = size.m, n = size.n, k = size.k;
        const bool ta = form.transpose_a, tb = form.transpose_b;
        const Fill fill = meaningful_fill(form.integers ? Fill::integers : Fill::normal, types, k, request.strict);
        const Tensor a = random_tensor(request, ta ? Shape{k, m} : Shape{m, k}, types.a, Layout::plain, 1, fill);
        const Tensor b = random_tensor(request, tb ? Shape{n, k} : Shape{k, n}, types.b, Layout::plain, 2, fill);
        const Tensor bias = form.bias ? random_tensor(request, {n}, types.out, Layout::plain, 3, fill) : Tensor();
        Tensor out(request.device, {m, n}, types.out, form.keeps ? Layout::any : Layout::plain), kept;
        const bool masks = form.activation == FusedActivation::relu;
        if (form.keeps && masks) kept = Tensor(request.device, {m, relu_mask_bytes(n)}, DType::u8);
        if (form.keeps && !masks) kept = Tensor(request.device, {m, n}, types.out, Layout::any);
        const FusedMatmul op{.a = a,
                             .b = b,
                             .bias = bias,
                             .out = out,
                             .kept = kept,
                             .transpose_a = ta,
                             .transpose_b = tb,
                             .activation = form.activation,
                             .math = types.math};
        const std::string name = fused_name(types, size, form.activation, ta, tb) + (form.bias ? " bias" : "") +
                                 (form.keeps ? " keeps" : "") + (form.integers ? " integers" : "");
        run_case(name, op, [&](CaseResult& result) {
          const Factors factors(a, b, ta, tb, size, [&](const Tensor& t) { return as_multiplied(t, types.math); });
          const std::vector<double> bv = form.bias ? bias.values() : std::vector<double>(static_cast<size_t>(n));
          const Format& format = epilogue_format(types.math);
          // A library may also have rounded what it applies GELU to.
          const double roundoff = request.rounds_between ? format_of(types.out).unit_roundoff() : 0;
          const auto rounded = [&](double z) { return roundoff * std::fabs(z); };
          std::vector<double> before, before_slack, after, after_slack;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              const Sum sum = factors.sum(i, j);
              const double z = sum.value + bv[static_cast<size_t>(j)], of_sum = fused_slack(sum, types, request);
              const bool exact = of_sum == 0 && round_to(format, z) == z;
              before.push_back(z);
              before_slack.push_back(exact ? 0 : of_sum + gamma(1, format) * (std::fabs(z) + of_sum));
              if (form.activation == FusedActivation::gelu_tanh) {
                using Row = activations::GeluTanh;
                const double y = Row::forward(z);
                after.push_back(y);
                after_slack.push_back(kSteepestGelu * (before_slack.back() + rounded(z)) +
                                      gamma(Row::forward_steps, format) * std::fabs(y) +
                                      smallest(format) * (1 + std::fabs(z)));
              } else {
                after.push_back(masks && z < 0 ? 0 : z), after_slack.push_back(before_slack.back());
              }
            }
          result.expect_close(out, after, after_slack);
          if (!form.keeps) return;
          if (!masks) return result.expect_close(kept, before, before_slack, "kept");
          const std::vector<double> mask = kept.values();
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              const auto at = static_cast<size_t>(i * n + j);
              if (before[at] != 0 && std::fabs(before[at]) <= before_slack[at]) continue;  // its sign may be lost
              if (mask_bit(mask, i, j, n) == (before[at] > 0)) continue;
              return result.add("the mask is wrong in row " + std::to_string(i) + ", column " + std::to_string(j));
            }
        });
      }
}

template <>
void Cases<FusedMatmulBackward>::each(const CaseRequest& request, const RunCase<FusedMatmulBackward>& run_case) {
  for (const ContractionTypes& types : request.axes.contractions)
    for (const MatmulSize& size : request.axes.matmuls)
      for (const FusedBackwardForm& form : request.axes.fused_backward) {
        const int64_t m = size.m, n = size.n, k = size.k;
        const bool ta = form.transpose_a, tb = form.transpose_b, masks = form.activation == FusedActivation::relu,
                   gelu = form.activation == FusedActivation::gelu_tanh;
        const Fill fill = meaningful_fill(form.integers ? Fill::integers : Fill::normal, types, k, request.strict);
        const Tensor a = random_tensor(request, ta ? Shape{k, m} : Shape{m, k}, types.a, Layout::plain, 1, fill);
        const Tensor b = random_tensor(request, tb ? Shape{n, k} : Shape{k, n}, types.b, Layout::plain, 2, fill);
        const auto bits = [&] {
          const RandomKey key(4);
          std::vector<double> bytes(static_cast<size_t>(m * relu_mask_bytes(n)));
          for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<double>(key.below(i, 256));
          return bytes;
        };
        Tensor kept;
        if (masks) kept = filled_tensor(request, {m, relu_mask_bytes(n)}, DType::u8, Layout::plain, bits);
        if (gelu) kept = random_tensor(request, {m, n}, types.out, Layout::plain, 4);
        Tensor out(request.device, {m, n}, types.out, form.integers ? Layout::any : Layout::plain), dbias;
        const int64_t sums = form.sums == BiasSums::a ? m : n;
        if (form.sums != BiasSums::none) dbias = Tensor(request.device, {sums}, types.out);
        const FusedMatmulBackward op{.a = a,
                                     .b = b,
                                     .kept = kept,
                                     .out = out,
                                     .dbias = dbias,
                                     .transpose_a = ta,
                                     .transpose_b = tb,
                                     .activation = form.activation,
                                     .sums = form.sums,
                                     .math = types.math};
        const std::string name = fused_name(types, size, form.activation, ta, tb) + " sums " +
                                 std::to_string(static_cast<int>(form.sums)) + (form.integers ? " integers" : "");
        run_case(name, op, [&](CaseResult& result) {
          const Factors factors(a, b, ta, tb, size, [&](const Tensor& t) { return as_multiplied(t, types.math); });
          const std::vector<double> zs =
              form.activation == FusedActivation::none ? std::vector<double>() : kept.values();
          const Format& format = epilogue_format(types.math);
          std::vector<double> expected, slack;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              const Sum sum = factors.sum(i, j);
              const double of_sum = fused_slack(sum, types, request);
              if (gelu) {
                using Row = activations::GeluTanh;
                const double z = zs[static_cast<size_t>(i * n + j)], dz = Row::backward(z, sum.value);
                expected.push_back(dz);
                slack.push_back(kSteepestGelu * of_sum +
                                gamma(Row::backward_steps, format) * std::max(std::fabs(dz), std::fabs(sum.value)) +
                                smallest(format) * (1 + std::fabs(z)));
              } else {
                const bool passes = !masks || mask_bit(zs, i, j, n);
                expected.push_back(passes ? sum.value : 0), slack.push_back(passes ? of_sum : 0);
              }
            }
          result.expect_close(out, expected, slack);
          if (form.sums == BiasSums::none) return;

          std::vector<double> sum(static_cast<size_t>(sums)), bound(sum.size());
          // A library may round the operands, or the result before it is added: that is not documented.
          const auto add = [&](int64_t at, double value, double own, double rounded, double terms) {
            sum[static_cast<size_t>(at)] += value;
            bound[static_cast<size_t>(at)] +=
                own + (gamma(terms, format) + (request.strict ? 0 : rounded)) * std::fabs(value);
          };
          const double of_result = format_of(types.out).unit_roundoff(), of_operand = gamma(2, types.math.multiply);
          if (form.sums == BiasSums::out)
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                const auto at = static_cast<size_t>(i * n + j);
                add(j, expected[at], slack[at], of_result, static_cast<double>(m));
              }
          const Factors stored(a, b, ta, tb, size, [](const Tensor& t) { return t.values(); });
          const auto terms = static_cast<double>(k);
          if (form.sums == BiasSums::a)
            for (int64_t i = 0; i < m; ++i)
              for (int64_t l = 0; l < k; ++l) add(i, stored.a[static_cast<size_t>(i * k + l)], 0, of_operand, terms);
          if (form.sums == BiasSums::b)
            for (int64_t l = 0; l < k; ++l)
              for (int64_t j = 0; j < n; ++j) add(j, stored.b[static_cast<size_t>(l * n + j)], 0, of_operand, terms);
          result.expect_close(dbias, sum, bound, "dbias");
        });
      }
}

}  // namespace halfmark::kernels::ops_cases
