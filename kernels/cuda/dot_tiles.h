// Which thread holds which element of a matrix instruction's operands (PTX ISA, "Matrix Fragments for mma" and
// "Asynchronous warpgroup-level matrix multiply"). All instructions except the f16 mma.m8n8k4 share one pattern. Thread
// 4 g + t of a warp holds rows g and g + 8 of A and column g of B. Of the result it holds columns 2 t and 2 t + 1 in
// rows g and g + 8. wgmma gives sixteen rows to each of its four warps. Only the size of an element differs. The layout
// of tcgen05, whose operands are not in registers, is in dot_tcgen05.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/dot_table.h"

namespace halfmark::kernels::cuda {

// Row and column in the tile of an operand. mma.m8n8k4 of f16 multiplies four tiles at once.
struct TilePlace {
  int row, column, tile;
  friend constexpr bool operator==(const TilePlace&, const TilePlace&) = default;
};

// How an instruction is divided into registers.
struct DotTile {
  bool quads;  // mma.m8n8k4 of f16: four tiles, each of two groups of four threads
  bool wgmma;
  int k;                                  // products
  int elements;                           // elements of A or B per register: consecutive k
  int m, n;                               // rows of A, columns of B
  int a_registers, b_registers, results;  // per thread; results are elements

  HM_HOST_DEVICE constexpr int tiles() const { return quads ? 4 : 1; }
  HM_HOST_DEVICE constexpr int threads() const { return wgmma ? 128 : 32; }
  // Independent dot products in one instruction: the diagonals of its tiles.
  HM_HOST_DEVICE constexpr int problems() const { return 8 * tiles(); }
};

HM_HOST_DEVICE constexpr DotTile tile_of(const DotRow& row) {
  DotTile t{};
  t.wgmma = is_wgmma(row.instruction);
  t.quads = row.instruction == MatrixInstruction::mma_m8n8k4 && row.a == DType::f16;
  t.k = dot_depth(row.instruction);
  // A register has 32 bits, in FP64 64. In m16n8k32 an e2m1 takes a whole byte.
  const bool in_bytes = row.a == DType::e2m1 && t.k == 32;
  t.elements = row.a == DType::f64 ? 1 : 32 / (in_bytes ? 8 : dot_bits(row.a));
  t.m = t.wgmma ? 64 : row.instruction == MatrixInstruction::mma_m8n8k4 ? 8 : 16;
  t.n = 8;
  const int shared = t.threads() * t.elements;
  t.a_registers = t.tiles() * t.m * t.k / shared;
  t.b_registers = t.tiles() * t.n * t.k / shared;  // unused in wgmma: B is in shared memory
  t.results = t.tiles() * t.m * t.n / t.threads();
  return t;
}

// The first of the consecutive elements of A in a register: row, k.
HM_HOST_DEVICE constexpr TilePlace a_place(const DotTile& tile, int thread, int reg) {
  const int lane = thread % 32;
  if (tile.quads) return {lane % 4 + (lane < 16 ? 0 : 4), reg * tile.elements, lane % 16 / 4};
  return {thread / 32 * 16 + lane / 4 + reg % 2 * 8, (lane % 4 + reg / 2 * 4) * tile.elements, 0};
}

// The first of the consecutive elements of B in a register: k, column.
HM_HOST_DEVICE constexpr TilePlace b_place(const DotTile& tile, int thread, int reg) {
  const int lane = thread % 32;
  if (tile.quads) return {reg * tile.elements, lane % 4 + (lane < 16 ? 0 : 4), lane % 16 / 4};
  return {(lane % 4 + reg * 4) * tile.elements, lane / 4, 0};
}

// An element of c or d. `narrow`: f16, two to a register.
HM_HOST_DEVICE constexpr TilePlace result_place(const DotTile& tile, bool narrow, int thread, int i) {
  const int lane = thread % 32;
  if (tile.quads && narrow) return {lane % 4 + (lane < 16 ? 0 : 4), i, lane % 16 / 4};
  if (tile.quads) return {(lane & 1) + (i & 2) + (lane < 16 ? 0 : 4), (i & 4) + (lane & 2) + (i & 1), lane % 16 / 4};
  return {thread / 32 * 16 + lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, 0};
}

// The row of A whose scales a thread supplies, with thread-id-a 0, and the column of B, with thread-id-b 0. The other
// threads' registers are not read; they hold the same values.
HM_HOST_DEVICE constexpr int scale_row(int lane) { return lane / 4 + lane % 2 * 8; }
HM_HOST_DEVICE constexpr int scale_column(int lane) { return lane / 4; }

// Four e2m1 as stored (two per byte, the first in the low half), each unpacked to a byte of its own. The bits are in
// the middle of the byte, with two bits of padding on either side (as m16n8k32 of kind mxf8f6f4 requires).
HM_HOST_DEVICE constexpr uint32_t e2m1_in_bytes(uint32_t packed) {
  return ((packed & 0xFu) | (packed & 0xF0u) << 4 | (packed & 0xF00u) << 8 | (packed & 0xF000u) << 12) << 2;
}

// wgmma reads B, eight columns of 32 bytes of consecutive k, from shared memory without swizzle: two consecutive
// matrices of eight columns by 16 bytes.
inline constexpr int kWgmmaBytes = 256, kWgmmaHalf = 128;
HM_HOST_DEVICE constexpr int wgmma_offset(int column, int byte) {
  return byte / 16 * kWgmmaHalf + column * 16 + byte % 16;
}
// The descriptor: address and distances in units of 16 bytes at bits 0, 16 (to the next 16 bytes of k) and 32 (to the
// next eight columns). There are no further columns; both distances are equal, so their order does not matter.
HM_HOST_DEVICE constexpr uint64_t wgmma_descriptor(uint32_t shared_address) {
  constexpr uint64_t step = kWgmmaHalf / 16;
  return (shared_address & 0x3FFFFu) / 16 | step << 16 | step << 32;
}

}  // namespace halfmark::kernels::cuda
