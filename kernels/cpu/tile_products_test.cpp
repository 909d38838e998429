// Products of tiles with each set of instructions, element by element against chains of std::fma in increasing depth.
#include "kernels/cpu/host/tile_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor/random.h"

namespace halfmark::kernels::host {
namespace {

std::vector<Vectors> vectors_of_this_cpu() {
  std::vector<Vectors> all = {Vectors::baseline};
  if (widest_vectors() != Vectors::baseline) all.push_back(Vectors::avx2);
  if (widest_vectors() == Vectors::avx512) all.push_back(Vectors::avx512);
  return all;
}

std::vector<float> drawn(const char* name, int64_t count) {
  const RandomKey key = RandomKey(7).child(name);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(key.normal(static_cast<uint64_t>(i))));
  return values;
}

struct Sizes {
  int64_t rows, depth, columns;
};

// The operand on the left is [rows, depth] or, transposed, [depth, rows]; every stride is longer than its row.
void expect_chains_of_fma(const Sizes& s, Vectors vectors, bool transposed, bool adds) {
  const int64_t width = padded_columns(s.columns), b_stride = width + 5, out_stride = width + 3,
                a_stride = (transposed ? s.rows : s.depth) + 2;
  const std::vector<float> a = drawn("a", (transposed ? s.depth : s.rows) * a_stride),
                           b = drawn("b", s.depth * b_stride), before = drawn("out", s.rows * out_stride);
  std::vector<float> out = before;
  const TileLeft left{a.data(), transposed ? 1 : a_stride, transposed ? a_stride : 1};
  tile_products(left, s.rows, s.depth, b.data(), b_stride, out.data(), out_stride, s.columns, adds, vectors);
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < out_stride; ++c) {
      const auto at = static_cast<size_t>(r * out_stride + c);
      float expected = adds || c >= width ? before[at] : 0;  // nothing is written behind the padded columns
      for (int64_t k = 0; k < s.depth && c < width; ++k)
        expected = std::fma(a[static_cast<size_t>(transposed ? k * a_stride + r : r * a_stride + k)],
                            b[static_cast<size_t>(k * b_stride + c)], expected);
      ASSERT_EQ(out[at], expected) << s.rows << "x" << s.depth << "x" << s.columns << " row " << r << " column " << c
                                   << (transposed ? " transposed" : "") << (adds ? " added" : "") << " instructions "
                                   << static_cast<int>(vectors);
    }
}

TEST(TileProducts, AreChainsOfFusedMultiplyAddsWithEverySetOfInstructions) {
  for (const Vectors vectors : vectors_of_this_cpu())
    for (const int64_t rows : {1, 3, 4, 5, 7, 8, 9, 19})
      for (const int64_t columns : {1, 16, 17, 32, 33, 48, 70})
        for (const int64_t depth : {1, 2, 13})
          for (const bool transposed : {false, true})
            for (const bool adds : {false, true})
              expect_chains_of_fma({rows, depth, columns}, vectors, transposed, adds);
}

}  // namespace
}  // namespace halfmark::kernels::host
