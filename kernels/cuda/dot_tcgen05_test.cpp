// The layouts and descriptors of tcgen05.mma against the tables of the PTX ISA 9.0, copied in their original form.
#include "kernels/cuda/dot_tcgen05.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <utility>

namespace halfmark::kernels::cuda {
namespace {

using enum DType;
using enum MatrixInstruction;

DotRow tcgen05_row(MatrixInstruction instruction, DType a, DType b, DType sum, int block = 0, DType scale = e8m0) {
  for (const DotRow& row : kDotRows.row)
    if (row.instruction == instruction && row.a == a && row.b == b && row.out == sum && row.block == block &&
        (block == 0 || row.scale == scale))
      return row;
  ADD_FAILURE() << "no row";
  return {};
}

uint64_t bit_field(uint64_t value, int first, int last) {
  return value >> first & ((uint64_t{1} << (last - first + 1)) - 1);
}

TEST(DotTcgen05, LaysLinesInGroupsOfEight) {
  // "Strides", K-major, no swizzle, in units of 128 bits: 8 x 1 units are next to each other.
  std::set<int> places;
  for (int line = 0; line < 128; ++line)
    for (int byte = 0; byte < 32; ++byte) {
      const int unit = byte / 16, group = line / 8;
      EXPECT_EQ(tcgen05_offset(line, byte), unit * 2048 + group * 128 + line % 8 * 16 + byte % 16);
      places.insert(tcgen05_offset(line, byte));
    }
  EXPECT_EQ(places.size(), size_t{kTcgen05Matrix});
  EXPECT_EQ(*places.rbegin(), kTcgen05Matrix - 1);
}

TEST(DotTcgen05, MatrixDescriptorsAreThoseOfTheTable) {
  // Table "Shared memory descriptor layout".
  const uint64_t d = tcgen05_matrix(0x1230);
  EXPECT_EQ(bit_field(d, 0, 13), 0x123u);
  EXPECT_EQ(bit_field(d, 14, 15), 0u);
  EXPECT_EQ(bit_field(d, 16, 29), 2048u / 16);  // leading dimension byte offset
  EXPECT_EQ(bit_field(d, 30, 31), 0u);
  EXPECT_EQ(bit_field(d, 32, 45), 128u / 16);  // stride dimension byte offset
  EXPECT_EQ(bit_field(d, 46, 48), 1u);         // fixed constant 0b001
  EXPECT_EQ(bit_field(d, 49, 63), 0u);         // base offset, relative stride, constant 0, no swizzling
  EXPECT_EQ(bit_field(tcgen05_matrix(0x3FFF0), 0, 15), 0x3FFFu);
}

TEST(DotTcgen05, InstructionDescriptorsAreThoseOfTheTable) {
  // Table "Instruction descriptor format for .kind::tf32, .kind::f16, .kind::f8f6f4 and .kind::i8".
  const struct {
    DotRow row;
    uint32_t d, a, b;
  } plain[] = {
      {tcgen05_row(tcgen05_k8, f32, f32, f32), 1, 2, 2},    {tcgen05_row(tcgen05_k16, f16, f16, f32), 1, 0, 0},
      {tcgen05_row(tcgen05_k16, f16, f16, f16), 0, 0, 0},   {tcgen05_row(tcgen05_k16, bf16, bf16, f32), 1, 1, 1},
      {tcgen05_row(tcgen05_k32, e4m3, e4m3, f32), 1, 0, 0}, {tcgen05_row(tcgen05_k32, e5m2, e4m3, f16), 0, 1, 0},
      {tcgen05_row(tcgen05_k32, e4m3, e5m2, f32), 1, 0, 1}, {tcgen05_row(tcgen05_k32, e5m2, e5m2, f32), 1, 1, 1},
  };
  for (const auto& [row, d, a, b] : plain) {
    const uint32_t descriptor = tcgen05_instruction(row);
    EXPECT_EQ(bit_field(descriptor, 0, 3), 0u);  // dense, no saturation
    EXPECT_EQ(bit_field(descriptor, 4, 5), d);
    EXPECT_EQ(bit_field(descriptor, 6, 6), 0u);
    EXPECT_EQ(bit_field(descriptor, 7, 9), a);
    EXPECT_EQ(bit_field(descriptor, 10, 12), b);
    EXPECT_EQ(bit_field(descriptor, 13, 16), 0u);  // no negation, no transposition
    EXPECT_EQ(bit_field(descriptor, 17, 22), 128u >> 3);
    EXPECT_EQ(bit_field(descriptor, 23, 23), 0u);
    EXPECT_EQ(bit_field(descriptor, 24, 28), 128u >> 4);
    EXPECT_EQ(bit_field(descriptor, 29, 31), 0u);
  }
  // Tables "... for .kind::mxf8f6f4" and "... for .kind::mxf4 and .kind::mxf4nvf4".
  const struct {
    DotRow row;
    uint32_t a, b, scale;
  } scaled[] = {
      {tcgen05_row(tcgen05_k32, e4m3, e5m2, f32, 32), 0, 1, 1},
      {tcgen05_row(tcgen05_k32, e5m2, e4m3, f32, 32), 1, 0, 1},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 32), 1, 1, 1},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 16), 1, 1, 1},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 16, e4m3), 1, 1, 0},
  };
  for (const auto& [row, a, b, scale] : scaled) {
    const uint32_t descriptor = tcgen05_instruction(row);
    EXPECT_EQ(bit_field(descriptor, 0, 6), 0u);  // dense, the first byte of B's scales
    EXPECT_EQ(bit_field(descriptor, 7, 9), a);
    EXPECT_EQ(bit_field(descriptor, 10, 12), b);
    EXPECT_EQ(bit_field(descriptor, 13, 16), 0u);
    EXPECT_EQ(bit_field(descriptor, 17, 22), 128u >> 3);
    EXPECT_EQ(bit_field(descriptor, 23, 23), scale);
    EXPECT_EQ(bit_field(descriptor, 24, 26), 0u);
    EXPECT_EQ(bit_field(descriptor, 27, 28), 128u >> 7);
    EXPECT_EQ(bit_field(descriptor, 29, 31), 0u);  // the first byte of A's scales, K = 64
  }
}

TEST(DotTcgen05, NamesItsKinds) {
  const std::pair<DotRow, std::string> kinds[] = {
      {tcgen05_row(tcgen05_k8, f32, f32, f32), "tf32"},
      {tcgen05_row(tcgen05_k16, bf16, bf16, f32), "f16"},
      {tcgen05_row(tcgen05_k32, e4m3, e5m2, f16), "f8f6f4"},
      {tcgen05_row(tcgen05_k32, e4m3, e5m2, f32, 32), "mxf8f6f4.block_scale.scale_vec::1X"},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 32), "mxf4.block_scale.scale_vec::2X"},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 16), "mxf4nvf4.block_scale.scale_vec::4X"},
      {tcgen05_row(tcgen05_k64, e2m1, e2m1, f32, 16, e4m3), "mxf4nvf4.block_scale.scale_vec::4X"}};
  for (const auto& [row, kind] : kinds) EXPECT_EQ(ptx_of(row).text, "tcgen05.mma.cta_group::1.kind::" + kind);
}

TEST(DotTcgen05, EveryKindReads32BytesOfALine) {
  int rows = 0;
  for (const DotRow& row : kDotRows.row) {
    if (!is_tcgen05(row.instruction)) continue;
    ++rows;
    EXPECT_EQ(dot_depth(row.instruction) * dot_bits(row.a), kTcgen05Bytes * 8) << ptx_of(row).text;
    EXPECT_EQ(row.c, row.out) << ptx_of(row).text;
    // A power of two that has room for D and eight columns of scales.
    const uint32_t columns = tcgen05_columns(row);
    EXPECT_EQ(columns & (columns - 1), 0u);
    EXPECT_GE(columns, row.block ? kTcgen05ScalesB + 4 : 128u);
  }
  EXPECT_EQ(rows, 19);
}

TEST(DotTcgen05, PutsTheScalesOf128LinesInFourColumnsOf32Lanes) {
  std::set<int> lines;
  for (int column = 0; column < 4; ++column)
    for (int lane = 0; lane < 32; ++lane) {
      const int line = tcgen05_scale_line(column, lane);
      lines.insert(line);
      for (const int quarter : {32, 64, 96}) EXPECT_EQ(tcgen05_scale_line(column, lane + quarter), line);
      EXPECT_EQ(line / 32, column);
      EXPECT_EQ(line % 32, lane);
    }
  EXPECT_EQ(lines.size(), 128u);
  EXPECT_EQ(kTcgen05ScalesA, 128u);
  EXPECT_EQ(kTcgen05ScalesB, 132u);
  EXPECT_EQ(tcgen05_lane(96), 0x0060'0000u);
}

}  // namespace
}  // namespace halfmark::kernels::cuda
