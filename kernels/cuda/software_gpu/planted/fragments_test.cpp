// Matrix instructions: the fragment tables against those of the plugin, which were written apart from them, and results
// against plain products of small integers.
#include <array>
#include <cstdint>
#include <set>
#include <string>

#include "kernels/cuda/dot_tiles.h"
#include "kernels/cuda/software_gpu/fragments.h"
#include "kernels/cuda/software_gpu/matrix_sum.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

// The form of a row of the plugin's table, for one warp.
MatrixForm form_of(const cuda::DotRow& row) {
  const cuda::DotTile tile = cuda::tile_of(row);
  const int bits = row.a == DType::f64 ? 64 : 32 / tile.elements;
  return {tile.wgmma ? 16 : tile.m, tile.n, tile.k, bits, tile.quads};
}

TEST(Fragments, AgreeWithThePluginsTables) {
  for (const cuda::DotRow& row : cuda::kDotRows.row) {
    if (cuda::is_tcgen05(row.instruction)) continue;  // not in registers: tensor_layout_test.cpp
    const cuda::DotTile tile = cuda::tile_of(row);
    const MatrixForm form = form_of(row);
    const bool narrow = row.out == DType::f16;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < form.a_elements(); ++i) {
        const ElementPlace mine = a_element(form, lane, i);
        const cuda::TilePlace theirs = cuda::a_place(tile, lane, i / tile.elements);
        EXPECT_EQ(mine.row, theirs.row) << cuda::ptx_of(row).text << " a, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.column, theirs.column + i % tile.elements)
            << cuda::ptx_of(row).text << " a, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.product, theirs.tile);
      }
      for (int i = 0; i < form.b_elements() && !tile.wgmma; ++i) {
        const ElementPlace mine = b_element(form, lane, i);
        const cuda::TilePlace theirs = cuda::b_place(tile, lane, i / tile.elements);
        EXPECT_EQ(mine.row, theirs.row + i % tile.elements)
            << cuda::ptx_of(row).text << " b, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.column, theirs.column) << cuda::ptx_of(row).text << " b, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.product, theirs.tile);
      }
      for (int i = 0; i < form.c_elements(); ++i) {
        const ElementPlace mine = c_element(form, narrow, lane, i);
        const cuda::TilePlace theirs = cuda::result_place(tile, narrow, lane, i);
        EXPECT_EQ(mine.row, theirs.row) << cuda::ptx_of(row).text << " d, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.column, theirs.column) << cuda::ptx_of(row).text << " d, lane " << lane << ", element " << i;
        EXPECT_EQ(mine.product, theirs.tile);
      }
    }
  }
}

TEST(Fragments, HoldEveryElementOnce) {
  for (const cuda::DotRow& row : cuda::kDotRows.row) {
    if (cuda::is_tcgen05(row.instruction)) continue;  // not in registers: tensor_layout_test.cpp
    const MatrixForm form = form_of(row);
    std::set<std::array<int, 3>> a, b, c;
    for (int lane = 0; lane < 32; ++lane) {
      const auto add = [&](auto& to, const ElementPlace& at) {
        EXPECT_TRUE(to.insert({at.product, at.row, at.column}).second);
      };
      for (int i = 0; i < form.a_elements(); ++i) add(a, a_element(form, lane, i));
      for (int i = 0; i < form.b_elements(); ++i) add(b, b_element(form, lane, i));
      for (int i = 0; i < form.c_elements(); ++i) add(c, c_element(form, row.out == DType::f16, lane, i));
    }
    const auto products = static_cast<size_t>(form.quads ? 4 : 1);
    EXPECT_EQ(a.size(), products * static_cast<size_t>(form.m * form.k)) << cuda::ptx_of(row).text;
    EXPECT_EQ(b.size(), products * static_cast<size_t>(form.n * form.k)) << cuda::ptx_of(row).text;
    EXPECT_EQ(c.size(), products * static_cast<size_t>(form.m * form.n)) << cuda::ptx_of(row).text;
  }
}

TEST(Fragments, ScalesComeFromTheLanesThatThePluginWrites) {
  for (int lane = 0; lane < 32; ++lane) {
    if (lane % 4 < 2) {
      EXPECT_EQ(lane_of_scale_a(cuda::scale_row(lane), 0), lane);
    }
    if (lane % 4 == 0) {
      EXPECT_EQ(lane_of_scale_b(cuda::scale_column(lane), 0), lane);
    }
  }
}

TEST(Fragments, DescriptorsLeadToThePluginsPlaces) {
  const uint64_t descriptor = cuda::wgmma_descriptor(1024);
  for (int column = 0; column < 8; ++column)
    for (int byte = 0; byte < 32; ++byte)
      EXPECT_EQ(descriptor_address(descriptor, column, byte),
                1024u + static_cast<uint32_t>(cuda::wgmma_offset(column, byte)));
  // Rows beyond eight follow the stride, the next 16 bytes of k the leading dimension.
  const uint64_t apart = (uint64_t{2} << 16) | (uint64_t{5} << 32);
  EXPECT_EQ(descriptor_address(apart, 9, 17), 5u * 16 + 2 * 16 + 16 + 1);
}

TEST(MatrixSum, OfSmallIntegersIsThePlainProduct) {
  const struct {
    int architecture;
    MatrixTypes types;
    int m, n;
  } rows[] = {
      {75, {MatrixInstruction::mma_m16n8k8, DType::f16, DType::f16, DType::f32, DType::f32}, 16, 8},
      {75, {MatrixInstruction::mma_m8n8k4, DType::f16, DType::f16, DType::f16, DType::f32}, 8, 8},
      {80, {MatrixInstruction::mma_m16n8k16, DType::bf16, DType::bf16, DType::f32, DType::f32}, 16, 8},
      {89, {MatrixInstruction::mma_m16n8k32, DType::e4m3, DType::e5m2, DType::f32, DType::f32}, 16, 8},
      {90, {MatrixInstruction::wgmma_k16, DType::f16, DType::f16, DType::f32, DType::f32}, 16, 16},
      {90, {MatrixInstruction::mma_m16n8k16, DType::f64, DType::f64, DType::f64, DType::f64}, 16, 8},
      {100, {MatrixInstruction::mma_m16n8k8, DType::f32, DType::f32, DType::f32, DType::f32}, 16, 8},
      {121, {MatrixInstruction::mma_m16n8k32, DType::e2m1, DType::e2m1, DType::f32, DType::f32, 32}, 16, 8},
  };
  for (const auto& row : rows) {
    const int k = depth_of(row.types.instruction);
    MatrixProblem p{row.m, row.n, k, {}, {}, {}, {}, {}, {}};
    const auto value = [](int i, int j) { return static_cast<double>((i * 5 + j * 3) % 3 - 1); };
    for (int i = 0; i < row.m; ++i)
      for (int j = 0; j < k; ++j) p.a.push_back(encode(row.types.a, value(i, j)));
    for (int i = 0; i < row.n; ++i)
      for (int j = 0; j < k; ++j) p.b.push_back(encode(row.types.b, value(i + 1, j)));
    for (int i = 0; i < row.m * row.n; ++i) p.c.push_back(encode(row.types.c, i % 4));
    if (row.types.block)
      p.scale_a.assign(static_cast<size_t>(row.m), 128), p.scale_b.assign(static_cast<size_t>(row.n), 126);  // 2, 1/2
    ASSERT_EQ(multiply(row.architecture, row.types, p), "");
    for (int i = 0; i < row.m; ++i)
      for (int j = 0; j < row.n; ++j) {
        double sum = (i * row.n + j) % 4;
        for (int n = 0; n < k; ++n) sum += value(i, n) * value(j + 1, n);
        EXPECT_EQ(decode(row.types.d, p.d[static_cast<size_t>(i * row.n + j)]), sum)
            << row.architecture << " " << i << " " << j;
      }
  }
}

TEST(MatrixSum, SaysWhatAnArchitectureDoesNotHave) {
  MatrixProblem p{16, 8, 16, {}, {}, {}, {}, {}, {}};
  const MatrixTypes bf16{MatrixInstruction::mma_m16n8k16, DType::bf16, DType::bf16, DType::f32, DType::f32};
  EXPECT_NE(multiply(75, bf16, p).find("sm_75: turing has no mma.m16n8k16"), std::string::npos);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
