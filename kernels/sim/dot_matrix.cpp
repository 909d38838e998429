// Chooses the path, distributes the tiles over the threads, and computes with dot() what a path does not handle.
#include "kernels/sim/dot_matrix.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_engine.h"

namespace halfmark::kernels {
namespace {

using dot_engine::Engine;
using dot_engine::kTileRows;
using dot_engine::Packed;
using dot_engine::Plan;

uint32_t code_at(const Panel& panel, size_t vector, size_t k) {
  const size_t at = vector * panel.stride + k;
  const size_t size = size_of_operand(panel.format);
  if (size == 1) return static_cast<const uint8_t*>(panel.codes)[at];
  if (size == 2) return static_cast<const uint16_t*>(panel.codes)[at];
  HM_CHECK(size == 4, "operands of " + std::to_string(size) + " bytes are not supported");
  return static_cast<const uint32_t*>(panel.codes)[at];
}

void terms_of(const Panel& panel, size_t vector, Term* terms) {
  for (size_t k = 0; k < panel.depth; ++k) terms[k] = take_apart(panel.format, code_at(panel, vector, k));
}

std::vector<Term> terms_of(const Panel& panel) {
  std::vector<Term> terms(panel.vectors * panel.depth);
  for (size_t i = 0; i < panel.vectors; ++i) terms_of(panel, i, terms.data() + i * panel.depth);
  return terms;
}

void scalar(const TensorCore& core, const Panel& left, const Panel& right,
            uint32_t* d) {  // NOLINT(readability-non-const-parameter): written inside the lambda
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

// Whether the vector paths handle this addend (dot_engine.h).
bool usual_addend(const Plan& plan, uint32_t c) {
  if (plan.half) return (c & 0x7C00u) != 0x7C00u;
  const int exponent = static_cast<int>((c >> 23) & 0xFF) - 127;
  return (c & 0x7FFFFFFFu) == 0 || (exponent >= dot_engine::kLeastExponent && exponent < dot_engine::kAddendLimit);
}

// An element to be computed by dot(), with its c.
struct Rest {
  size_t row, column;
  uint32_t c;
};

const Engine& engine_of(DotPath path) {
  switch (path) {
    case DotPath::scalar:
      break;
    case DotPath::avx2:
      return dot_engine::avx2_engine();
    case DotPath::avx512:
      return dot_engine::avx512_engine();
  }
  throw Error("dot_matrix: no vector engine for path " + std::string(name_of(path)));
}

class Vectors {
 public:
  Vectors(const Engine& engine, const Plan& plan, const TensorCore& core, const Panel& left, const Panel& right,
          uint32_t* d)
      : engine_(engine),
        plan_(plan),
        core_(core),
        left_panel_(left),
        right_panel_(right),
        least_(dot_engine::least_operands(plan, left, right)),
        left_(plan, left, kTileRows, false, least_.left),
        right_(plan, right, engine.lanes, true, least_.right),
        d_(d) {}

  void run() {
    const size_t tiles = left_.tiles() * right_.tiles();
    // The tiles of one panel of rows are consecutive, so that the panel stays in the cache.
    parallel_for(static_cast<int64_t>(tiles), 4, [&](int64_t begin, int64_t end) {
      std::vector<Rest> rest;
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        tile(i / right_.tiles(), i % right_.tiles(), rest);
      finish(rest);
    });
  }

 private:
  void tile(size_t upper, size_t side, std::vector<Rest>& rest) {
    const size_t row = upper * kTileRows, column = side * engine_.lanes, columns = right_panel_.vectors;
    const size_t rows = std::min(kTileRows, left_panel_.vectors - row),
                 width = std::min(engine_.lanes, columns - column);
    for (size_t i = row; i < row + rows; ++i)
      for (size_t j = column; j < column + width; ++j) {
        uint32_t& c = d_[i * columns + j];
        if (!left_.hard(i) && !right_.hard(j) && usual_addend(plan_, c)) continue;
        rest.push_back({i, j, c});
        c = 0;
      }
    engine_.run(plan_, {left_.tile(upper), right_.tile(side), left_.blocks(), rows, width, d_ + row * columns + column,
                        columns});
  }

  void finish(const std::vector<Rest>& rest) {
    if (rest.empty()) return;
    const size_t depth = left_panel_.depth;
    std::vector<Term> a(depth), b(depth);
    size_t row = left_panel_.vectors;
    for (const Rest& element : rest) {
      if (element.row != row) terms_of(left_panel_, row = element.row, a.data());
      terms_of(right_panel_, element.column, b.data());
      d_[element.row * right_panel_.vectors + element.column] =
          dot(core_, {left_panel_.format, a}, {right_panel_.format, b}, element.c);
    }
  }

  const Engine& engine_;
  const Plan& plan_;
  const TensorCore& core_;
  const Panel &left_panel_, &right_panel_;
  dot_engine::LeastOperands least_;
  Packed left_, right_;
  uint32_t* d_;
};

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
  if (format.bits() == 16) return 2;
  HM_CHECK(format.bits() <= 8, "dot_matrix: no operands of format " + std::string(format.name));
  return 1;
}

std::span<const DotPath> dot_paths() {
  static const std::vector<DotPath> paths = [] {
    std::vector<DotPath> all{DotPath::scalar};
    if (has_avx2_f16c()) all.push_back(DotPath::avx2);
    if (has_avx512()) all.push_back(DotPath::avx512);
    return all;
  }();
  return paths;
}

void dot_matrix(const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d) {
  dot_matrix(dot_paths().back(), core, left, right, d);
}

void dot_matrix(DotPath path, const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d) {
  HM_CHECK(left.depth == right.depth, "panels of different depth");
  HM_CHECK(core.addend == core.result && !core.scaling.block,
           "dot_matrix: scales are not supported, and c must have the result's format");
  HM_CHECK(std::ranges::count(dot_paths(), path), "dot_matrix: this CPU has no path " + std::string(name_of(path)));
  if (left.depth == 0 || left.vectors == 0 || right.vectors == 0) return;  // d is c
  const auto plan = path == DotPath::scalar ? std::nullopt : dot_engine::plan_for(core, left.format, right.format);
  if (!plan) return scalar(core, left, right, d);
  Vectors(engine_of(path), *plan, core, left, right, d).run();
}

}  // namespace halfmark::kernels
