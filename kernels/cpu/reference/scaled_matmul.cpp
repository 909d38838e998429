// Reference row of matmul on operands with block scales. Codes times scales and their products are exact. After each
// addition, in increasing k, the sum is rounded to fp32. The tensor scales are applied at the end, before the one
// rounding to the output's dtype.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/reference/round.h"

namespace halfmark::kernels::reference {
namespace {

// [rows, k] without the tensor's scale.
std::vector<double> scaled(const Scaled& operand) {
  std::vector<double> values = read<double>(operand.codes);
  const std::vector<double> scales = read<double>(operand.scales);
  const size_t block = values.size() / scales.size();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::fabs(scales[i / block]);
  return values;
}

void run(Device&, const ScaledMatmul& op) {
  const std::vector<double> a = scaled(op.a), b = scaled(op.b);
  const auto k = static_cast<size_t>(op.a.codes.shape()[1]), columns = static_cast<size_t>(op.out.shape()[1]);
  const Rounder round(kFp32);
  std::vector<double> sums(static_cast<size_t>(op.out.elements()));
  parallel_for(op.out.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      for (size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (size_t l = 0; l < k; ++l) sum = round(add_odd(a[i * k + l] * b[j * k + l], sum));
        sums[i * columns + j] = sum * op.factor();
      }
  });
  settle(op.out, op.a.codes);
  write(op.out, sums);
}

}  // namespace

void add_scaled_matmul_rows(KernelTable& table) { add_row<ScaledMatmul>(table, &run); }

}  // namespace halfmark::kernels::reference
