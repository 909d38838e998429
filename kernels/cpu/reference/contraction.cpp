// Reference rows of matmul and the convolutions. Operands are rounded to math.multiply and products are exact. After
// each addition, in increasing k, the sum is rounded to math.accumulate, so a step is one correctly rounded fused
// multiply-add. Places without an element (padding) are left out. split_k > 1 sums contiguous slices of ceil(depth /
// split_k) terms, rounds each to math.partial and adds them in order in math.accumulate. beta: out and beta are rounded
// to math.accumulate and added after the sum, as one more fused step. fast_accumulate has no effect here.
#include "kernels/cpu/contraction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu/reference/contraction_paths.h"
#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/reference/round.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::reference {
namespace {

#if defined(__x86_64__)
#define HM_FMA __attribute__((target("avx2,fma")))
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define HM_FMA
bool has_fma() { return false; }
#endif

// sum[c] += left[index[k]] right[k, c] over the terms of one slice; `right` points at the slice's first row.
template <class T>
using Slice = void(std::span<const int64_t> index, const T* left, const T* right, int64_t columns, T* sum);

HM_FMA void sum_fma(std::span<const int64_t> index, const float* left, const float* right, int64_t columns,
                    float* sum) {
  for (size_t k = 0; k < index.size(); ++k, right += columns) {
    if (index[k] < 0) continue;
    const float a = left[index[k]];
    for (int64_t c = 0; c < columns; ++c) sum[c] = __builtin_fmaf(a, right[c], sum[c]);
  }
}

HM_FMA void sum_fma64(std::span<const int64_t> index, const double* left, const double* right, int64_t columns,
                      double* sum) {
  for (size_t k = 0; k < index.size(); ++k, right += columns) {
    if (index[k] < 0) continue;
    const double a = left[index[k]];
    for (int64_t c = 0; c < columns; ++c) sum[c] = __builtin_fma(a, right[c], sum[c]);
  }
}

void sum_plain(std::span<const int64_t> index, const float* left, const float* right, int64_t columns, float* sum) {
  for (size_t k = 0; k < index.size(); ++k, right += columns) {
    if (index[k] < 0) continue;
    const float a = left[index[k]];
    for (int64_t c = 0; c < columns; ++c) sum[c] = sum[c] + a * right[c];
  }
}

// Exact sums for formats where fp32 does not suffice: the sum rounded to odd in fp64, then one rounding. Passed by
// value, so that the loop keeps it in registers.
HM_INLINE void sum_odd_body(const Rounder round, std::span<const int64_t> index, const double* left,
                            const double* right, int64_t columns, double* sum) {
  for (size_t k = 0; k < index.size(); ++k, right += columns) {
    if (index[k] < 0) continue;
    const double a = left[index[k]];
    for (int64_t c = 0; c < columns; ++c) sum[c] = round(add_odd(a * right[c], sum[c]));
  }
}
void sum_odd(const Rounder& round, std::span<const int64_t> index, const double* left, const double* right,
             int64_t columns, double* sum) {
  sum_odd_body(round, index, left, right, columns, sum);
}
HM_FMA void sum_odd_wide(const Rounder& round, std::span<const int64_t> index, const double* left, const double* right,
                         int64_t columns, double* sum) {
  sum_odd_body(round, index, left, right, columns, sum);
}

// The properties of an operand that decide whether its products are exact in fp32.
struct Extent {
  int bits = 0, lowest = 1000, highest = -1000;  // significant bits; exponents of the last and the leading place
};

Extent extent_of(const std::vector<float>& values, int bits) {
  Extent extent{bits, 1000, -1000};
  for (const float x : values) {
    if (x == 0 || !std::isfinite(x)) continue;
    const int e = std::ilogb(x);
    extent.lowest = std::min(extent.lowest, e - (bits - 1));
    extent.highest = std::max(extent.highest, e);
  }
  return extent;
}

bool products_fit_float(const Extent& a, const Extent& b) {
  return a.bits + b.bits <= 24 && a.lowest + b.lowest >= -149 && a.highest + b.highest + 1 <= 127;
}

template <class T>
std::vector<T> rounded(const Tensor& tensor, const Format& multiply) {
  std::vector<T> values = read<T>(tensor);
  if (multiply.fraction_bits >= format_of(tensor.dtype()).fraction_bits &&
      multiply.exponent_bits >= format_of(tensor.dtype()).exponent_bits)
    return values;
  if constexpr (std::is_same_v<T, float>) {
    parallel_for(static_cast<int64_t>(values.size()), kGrain, [&](int64_t begin, int64_t end) {
      round_array(multiply, values.data() + begin, static_cast<size_t>(end - begin));
    });
  } else {
    const Rounder round(multiply);
    for (T& value : values) value = round(value);
  }
  return values;
}

int significant_bits(const Tensor& tensor, const Format& multiply) {
  return std::min(format_of(tensor.dtype()).fraction_bits, multiply.fraction_bits) + 1;
}

// One row of `out` at a time; slice(index, right, sum) adds the terms of one slice to the sums of the row's columns.
template <class T, class AddSlice>
void contract_with(const Contraction& work, const std::vector<T>& right, AddSlice slice) {
  const Rounder accumulate(work.math.accumulate), to_partial(work.math.partial);
  const int64_t slices = std::max<int64_t>(1, std::min<int64_t>(work.math.split_k, work.depth));
  const int64_t slice_depth = (work.depth + slices - 1) / slices;
  Tensor& out = *work.out;
  std::vector<T> results(static_cast<size_t>(out.elements()));
  std::vector<double> before;
  if (work.beta != 0) before = read<double>(out);
  const double beta = accumulate(work.beta);
  const bool wide = work.math.accumulate == kFp64;
  std::vector<T> packed(static_cast<size_t>(work.depth * work.columns));

  for (int64_t group = 0; group < work.groups; ++group) {
    parallel_for(work.columns, std::max<int64_t>(1, kGrain / std::max<int64_t>(work.depth, 1)),
                 [&](int64_t begin, int64_t end) {
                   std::vector<int64_t> index(static_cast<size_t>(work.depth));
                   for (int64_t c = begin; c < end; ++c) {
                     work.right_column(group, c, index.data());
                     for (int64_t k = 0; k < work.depth; ++k)
                       packed[static_cast<size_t>(k * work.columns + c)] =
                           right[static_cast<size_t>(index[static_cast<size_t>(k)])];
                   }
                 });
    const int64_t work_of_row = std::max<int64_t>(work.depth * work.columns, 1);
    parallel_for(work.rows, std::max<int64_t>(1, kGrain / work_of_row), [&](int64_t begin, int64_t end) {
      std::vector<int64_t> index(static_cast<size_t>(work.depth));
      std::vector<T> sum(static_cast<size_t>(work.columns));
      std::vector<double> total(slices > 1 ? sum.size() : 0);
      for (int64_t r = begin; r < end; ++r) {
        work.left_row(group, r, index.data());
        for (int64_t first = 0, s = 0; s < slices; ++s, first += slice_depth) {
          const int64_t count = std::clamp<int64_t>(work.depth - first, 0, slice_depth);
          std::fill(sum.begin(), sum.end(), T{0});
          if (count > 0)
            slice({index.data() + first, static_cast<size_t>(count)}, packed.data() + first * work.columns, sum.data());
          if (slices == 1) break;
          for (size_t c = 0; c < sum.size(); ++c) {
            const double part = to_partial(static_cast<double>(sum[c]));
            total[c] = s == 0 ? accumulate(part) : wide ? total[c] + part : accumulate(add_odd(total[c], part));
          }
        }
        for (int64_t c = 0; c < work.columns; ++c) {
          const auto at = static_cast<size_t>(work.out_index(group, r, c));
          double value = slices > 1 ? total[static_cast<size_t>(c)] : static_cast<double>(sum[static_cast<size_t>(c)]);
          if (work.beta != 0) value = fused_multiply_add(work.math.accumulate, beta, accumulate(before[at]), value);
          results[at] = static_cast<T>(value);
        }
      }
    });
  }
  write(out, results);
}

template <class Op>
Refusal refuses_contraction(const Device& device, const Op& op) {
  if (Refusal refusal = refuses(device, op)) return refusal;
  return refuses_math(op.math);
}

template <class Op>
void run_contraction(Device&, const Op& op) {
  const Contraction work(op);
  settle(*work.out, *work.left);
  contract(work, fastest_path(work));
}

template <class Op>
void add(KernelTable& table) {
  table.of<Op>().push_back(
      {"reference", Speed::emulated, &refuses_contraction<Op>, &run_contraction<Op>, Repeats::by_construction});
}

}  // namespace

Refusal refuses_math(const Math& math) {
  if (math.accumulate == kFp64 || math.multiply.fraction_bits <= 25) return {};
  return "products of " + std::string(math.multiply.name) + " need an fp64 accumulator, not " +
         std::string(math.accumulate.name);
}

Path fastest_path(const Contraction& work) {
  const Math& math = work.math;
  if (math.accumulate == kFp64) return has_fma() ? Path::fma64 : Path::generic;
  if (math.accumulate != kFp32 || wants_fp64(*work.left) || wants_fp64(*work.right)) return Path::generic;
  if (has_fma()) return Path::fma;
  return products_exact_in_float(work) ? Path::multiply_add : Path::generic;
}

bool products_exact_in_float(const Contraction& work) {
  const Format& multiply = work.math.multiply;
  const int a = significant_bits(*work.left, multiply), b = significant_bits(*work.right, multiply);
  return a + b <= 24 && products_fit_float(extent_of(rounded<float>(*work.left, multiply), a),
                                           extent_of(rounded<float>(*work.right, multiply), b));
}

void contract(const Contraction& work, Path path) {
  const Format& multiply = work.math.multiply;
  if (path == Path::fma || path == Path::multiply_add) {
    const std::vector<float> left = rounded<float>(*work.left, multiply), right = rounded<float>(*work.right, multiply);
    Slice<float>* add = path == Path::fma ? sum_fma : sum_plain;
    return contract_with<float>(work, right, [&](std::span<const int64_t> index, const float* part, float* sum) {
      add(index, left.data(), part, work.columns, sum);
    });
  }
  const std::vector<double> left = rounded<double>(*work.left, multiply),
                            right = rounded<double>(*work.right, multiply);
  if (path == Path::fma64)
    return contract_with<double>(work, right, [&](std::span<const int64_t> index, const double* part, double* sum) {
      sum_fma64(index, left.data(), part, work.columns, sum);
    });
  if (work.math.accumulate == kFp64)
    return contract_with<double>(work, right, [&](std::span<const int64_t> index, const double* part, double* sum) {
      for (size_t k = 0; k < index.size(); ++k, part += work.columns)
        if (index[k] >= 0)
          for (int64_t c = 0; c < work.columns; ++c)
            sum[c] = std::fma(left[static_cast<size_t>(index[k])], part[c], sum[c]);
    });
  const Rounder round(work.math.accumulate);
  const auto add = has_fma() ? sum_odd_wide : sum_odd;
  contract_with<double>(work, right, [&](std::span<const int64_t> index, const double* part, double* sum) {
    add(round, index, left.data(), part, work.columns, sum);
  });
}

void add_contraction_rows(KernelTable& table) {
  add<Matmul>(table), add<Conv2d>(table), add<Conv2dBackwardData>(table), add<Conv2dBackwardWeights>(table);
}

}  // namespace halfmark::kernels::reference
