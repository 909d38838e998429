// Reference row of matmul on codes with scales. Codes times scales and their products are exact. After each addition, in
// increasing k, the sum is rounded to fp32. The tensors' scales are applied at the end, in fp32, before the one rounding to
// the output's dtype.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/reference/round.h"

namespace halfmark::kernels::reference {
namespace {

// What is multiplied, [rows, k], and the scale of each row and block of k if it belongs to the block's sum.
struct ScaledSide {
  std::vector<double> numbers;
  std::vector<float> outer;  // [rows, blocks]
};

ScaledSide side_of(const Scaled& operand, bool has_outer_scales) {
  const std::vector<double> codes = read<double>(operand.codes);
  const std::vector<double> scales = operand.scales.empty() ? std::vector<double>() : read<double>(operand.scales);
  const int64_t rows = operand.rows(), k = operand.depth();
  ScaledSide side;
  side.numbers.resize(codes.size());
  parallel_for(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t l = 0; l < k; ++l) {
        double number = codes[static_cast<size_t>(operand.transposed ? l * rows + row : row * k + l)];
        if (!scales.empty() && !has_outer_scales) number *= std::fabs(scales[operand.tile_of(row, l)]);
        side.numbers[static_cast<size_t>(row * k + l)] = number;
      }
  });
  if (!has_outer_scales) return side;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t l = 0; l < k; l += operand.block())
      side.outer.push_back(static_cast<float>(scales[operand.tile_of(row, l)]));
  return side;
}

// Whether products of such numbers are exact in fp32: at most 12 significant bits each, and no exponent out of its range. Then
// fp32 additions give what add_odd and rounding give.
bool are_moderate(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double x) {
    const double size = std::fabs(x);
    const bool is_narrow = (std::bit_cast<uint64_t>(x) & ((uint64_t{1} << 41) - 1)) == 0;  // of 52 fraction bits
    return x == 0 || (size >= 0x1p-50 && size <= 0x1p50 && is_narrow);
  });
}

// sums[j] += a[l] b[l, j] for l from `begin` to `end`, each rounded to fp32.
void add_products(const float* a, const std::vector<float>& b, size_t begin, size_t end, std::vector<float>& sums) {
  const size_t columns = sums.size();
  for (size_t l = begin; l < end; ++l)
    for (size_t j = 0; j < columns; ++j) sums[j] += a[l] * b[l * columns + j];
}
void add_products(const double* a, const std::vector<double>& b, size_t begin, size_t end, std::vector<float>& sums) {
  const Rounder round(kFp32);
  const size_t columns = sums.size();
  for (size_t l = begin; l < end; ++l)
    for (size_t j = 0; j < columns; ++j)
      sums[j] = static_cast<float>(round(add_odd(a[l] * b[l * columns + j], static_cast<double>(sums[j]))));
}

template <class T>
void run_in(const ScaledMatmul& op, const ScaledSide& left, const ScaledSide& right, std::vector<double>& results) {
  const auto k = static_cast<size_t>(op.a.depth()), columns = static_cast<size_t>(op.b.rows());
  const std::vector<T> a(left.numbers.begin(), left.numbers.end());
  std::vector<T> b(k * columns);  // with the columns adjacent
  for (size_t j = 0; j < columns; ++j)
    for (size_t l = 0; l < k; ++l) b[l * columns + j] = static_cast<T>(right.numbers[j * k + l]);
  const bool has_outer = op.has_outer_scales();
  const size_t block = has_outer ? static_cast<size_t>(op.a.block()) : std::max<size_t>(k, 1),
               blocks = (k + block - 1) / block;
  const bool has_factor = op.has_factor();
  const float factor = op.factor();
  parallel_for(op.a.rows(), 1, [&](int64_t first, int64_t last) {
    std::vector<float> sums(columns), part(columns);
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      std::ranges::fill(sums, 0.0F);
      for (size_t one = 0; one < blocks; ++one) {
        const size_t begin = one * block, end = std::min(begin + block, k);
        if (!has_outer) {
          add_products(&a[i * k], b, begin, end, sums);
          continue;
        }
        std::ranges::fill(part, 0.0F);
        add_products(&a[i * k], b, begin, end, part);
        for (size_t j = 0; j < columns; ++j)
          sums[j] += part[j] * (left.outer[i * blocks + one] * right.outer[j * blocks + one]);
      }
      for (size_t j = 0; j < columns; ++j)
        results[i * columns + j] = static_cast<double>(has_factor ? sums[j] * factor : sums[j]);
    }
  });
}

void run(Device&, const ScaledMatmul& op) {
  const ScaledSide a = side_of(op.a, op.has_outer_scales()), b = side_of(op.b, op.has_outer_scales());
  std::vector<double> results(static_cast<size_t>(op.out.elements()));
  if (are_moderate(a.numbers) && are_moderate(b.numbers))
    run_in<float>(op, a, b, results);
  else
    run_in<double>(op, a, b, results);
  settle(op.out, op.a.codes);
  write(op.out, results);
}

}  // namespace

void add_scaled_matmul_rows(KernelTable& table) { add_row<ScaledMatmul>(table, &run); }

}  // namespace halfmark::kernels::reference
