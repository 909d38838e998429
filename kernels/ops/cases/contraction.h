// Sums of products and their allowed error, for the cases of all operations that multiply matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/operands.h"

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

}  // namespace halfmark::kernels::ops_cases
