// Matmul and the convolutions in fp64 as the fp64 matrix instructions compute them (Ampere and later). Each output
// element is one chain of IEEE fused multiply-adds in increasing k that starts with c = beta times out. Padding is +0
// and is multiplied. split_k: contiguous slices, each a chain of its own from +0 (the first from c), rounded to
// math.partial and added in order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/contraction.h"
#include "kernels/cpu/reference/operand.h"
#include "kernels/sim/tensor_core_rows.h"

namespace halfmark::kernels {
namespace {

#if defined(__x86_64__)
#define HM_FMA __attribute__((target("avx2,fma")))
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define HM_FMA
bool has_fma() { return false; }
#endif

// sum[c] <- left[k] right[k, c] + sum[c], k increasing.
using Chain = void(const double* left, const double* right, size_t depth, size_t columns, double* sum);

HM_FMA void chain_fma(const double* left, const double* right, size_t depth, size_t columns, double* sum) {
  for (size_t k = 0; k < depth; ++k, right += columns)
    for (size_t c = 0; c < columns; ++c) sum[c] = __builtin_fma(left[k], right[c], sum[c]);
}

void chain_plain(const double* left, const double* right, size_t depth, size_t columns, double* sum) {
  for (size_t k = 0; k < depth; ++k, right += columns)
    for (size_t c = 0; c < columns; ++c) sum[c] = std::fma(left[k], right[c], sum[c]);
}

Refusal refuses_types(const Tensor& a, const Tensor& b, const Math& math) {
  if (a.dtype() != DType::f64 || b.dtype() != DType::f64) return "multiplies only f64 operands";
  if (math.multiply != kFp64 || math.accumulate != kFp64) return "multiplies and adds only in fp64";
  return {};
}

template <class Op>
Refusal refuses(const Device& device, const Op& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  const Contraction work(op);
  return refuses_types(*work.left, *work.right, op.math);
}

// The packed right operand of one group, [depth, columns].
std::vector<double> packed_columns(const Contraction& work, int64_t group, const std::vector<double>& right) {
  const auto columns = static_cast<size_t>(work.columns), depth = static_cast<size_t>(work.depth);
  std::vector<double> packed(depth * columns);
  std::vector<int64_t> index(depth);
  for (size_t c = 0; c < columns; ++c) {
    work.right_column(group, static_cast<int64_t>(c), index.data());
    for (size_t k = 0; k < depth; ++k)
      packed[k * columns + c] = index[k] < 0 ? 0.0 : right[static_cast<size_t>(index[k])];
  }
  return packed;
}

template <class Op>
void run(Device&, const Op& op) {
  const Contraction work(op);
  Tensor& out = *work.out;
  reference::settle(out, *work.left);
  Chain* const chain = has_fma() ? &chain_fma : &chain_plain;
  const std::vector<double> left = reference::read<double>(*work.left), right = reference::read<double>(*work.right);
  std::vector<double> before, results(static_cast<size_t>(out.elements()));
  if (work.beta != 0) before = reference::read<double>(out);
  const auto depth = static_cast<size_t>(work.depth), columns = static_cast<size_t>(work.columns);
  const size_t slices = std::clamp<size_t>(static_cast<size_t>(work.math.split_k), 1, std::max<size_t>(depth, 1));
  const size_t step = (depth + slices - 1) / slices;
  const auto work_of_row = std::max<int64_t>(work.depth * work.columns, 1);
  for (int64_t group = 0; group < work.groups; ++group) {
    const std::vector<double> packed = packed_columns(work, group, right);
    parallel_for(work.rows, std::max<int64_t>(1, reference::kGrain / work_of_row), [&](int64_t begin, int64_t end) {
      std::vector<int64_t> index(depth);
      std::vector<double> row(depth), sum(columns), total(columns);
      for (int64_t r = begin; r < end; ++r) {
        work.left_row(group, r, index.data());
        for (size_t k = 0; k < depth; ++k) row[k] = index[k] < 0 ? 0.0 : left[static_cast<size_t>(index[k])];
        const auto place = [&](size_t c) {
          return static_cast<size_t>(work.out_index(group, r, static_cast<int64_t>(c)));
        };
        for (size_t c = 0; c < columns; ++c) sum[c] = work.beta == 0 ? 0.0 : work.beta * before[place(c)];
        for (size_t s = 0; s < slices; ++s) {
          const size_t first = std::min(s * step, depth), last = std::min(first + step, depth);
          chain(row.data() + first, packed.data() + first * columns, last - first, columns, sum.data());
          if (slices == 1) break;
          for (size_t c = 0; c < columns; ++c) {
            const double part = round_to(work.math.partial, sum[c]);
            total[c] = s ? total[c] + part : part;
            sum[c] = 0;
          }
        }
        for (size_t c = 0; c < columns; ++c) {
          const double result = slices > 1 ? total[c] : sum[c];
          // As in dot(): the bits of a NaN are not guaranteed; here it is the quiet one.
          results[place(c)] = std::isnan(result) ? std::numeric_limits<double>::quiet_NaN() : result;
        }
      }
    });
  }
  reference::write(out, results);
}

template <class Op>
void add(KernelTable& table) {
  table.of<Op>().push_back({"tensor-core-fp64", Speed::emulated, &refuses<Op>, &run<Op>, Repeats::by_construction});
}

}  // namespace

void add_fp64_rows(KernelTable& table) {
  add<Matmul>(table), add<Conv2d>(table), add<Conv2dBackwardData>(table), add<Conv2dBackwardWeights>(table);
}

}  // namespace halfmark::kernels
