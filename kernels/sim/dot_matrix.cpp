#include "kernels/sim/dot_matrix.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"

namespace halfmark {
namespace {

constexpr std::array kPaths{DotPath::scalar};

uint32_t code_at(const Panel& panel, size_t vector, size_t k) {
  const size_t at = vector * panel.stride + k;
  switch (size_of_operand(panel.format)) {
    case 1:
      return static_cast<const uint8_t*>(panel.codes)[at];
    case 2:
      return static_cast<const uint16_t*>(panel.codes)[at];
    default:
      return static_cast<const uint32_t*>(panel.codes)[at];
  }
}

std::vector<Term> terms_of(const Panel& panel) {
  std::vector<Term> terms(panel.vectors * panel.depth);
  for (size_t i = 0; i < panel.vectors; ++i)
    for (size_t k = 0; k < panel.depth; ++k)
      terms[i * panel.depth + k] = take_apart(panel.format, code_at(panel, i, k));
  return terms;
}

void scalar(const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d) {
  const std::vector<Term> a = terms_of(left), b = terms_of(right);
  const size_t k = left.depth;
  const auto row_work = static_cast<int64_t>(std::max<size_t>(right.vectors * k, 1));
  parallel_for(static_cast<int64_t>(left.vectors), std::max<int64_t>(1, 4096 / row_work),
               [&](int64_t begin, int64_t end) {
                 for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
                   for (size_t j = 0; j < right.vectors; ++j) {
                     uint32_t& out = d[i * right.vectors + j];
                     out = dot(core, {left.format, std::span(a.data() + i * k, k)},
                               {right.format, std::span(b.data() + j * k, k)}, out);
                   }
               });
}

}  // namespace

std::string_view name_of(DotPath path) {
  switch (path) {
    case DotPath::scalar:
      return "scalar";
    case DotPath::avx2:
      return "avx2";
    case DotPath::avx512:
      return "avx512";
  }
  return "?";
}

size_t size_of_operand(const Format& format) {
  if (format == kTf32) return 4;
  return format.exponent_bits + format.fraction_bits == 15 ? 2 : 1;
}

std::span<const DotPath> dot_paths() { return kPaths; }

void dot_matrix(const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d) {
  dot_matrix(dot_paths().back(), core, left, right, d);
}

void dot_matrix(DotPath, const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d) {
  HM_CHECK(left.depth == right.depth, "panels of different depth");
  HM_CHECK(core.addend == core.result && !core.scaling.block, "dot_matrix: no scales, and c of the result's format");
  scalar(core, left, right, d);
}

}  // namespace halfmark
