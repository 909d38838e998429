// Where the operands of tcgen05.mma are, and the descriptors that say so. Section numbers are those of the PTX ISA 9.0;
// the layout of scales in tensor memory is also that of CUTLASS (cute/atom/mma_traits_sm100_frag.hpp, tmem_sf_frg).
//
// A block has 128 problems: M = N = 128. A and B are in shared memory, D (which is also C) in tensor memory, which has
// 128 lanes and columns of 32 bits (9.7.16.1): row i of D is lane i, column j is column j of the block's memory
// (9.7.16.10.5.4, layout D), also if D is f16, which takes the lower half of its 32 bits (9.7.16.10.4.1).
#pragma once

#include <cstdint>

#include "kernels/cuda/dot_table.h"

namespace halfmark::kernels::cuda {

inline constexpr int kTcgen05Problems = 128;
// K of an instruction is 32 bytes of a row of A or column of B in every kind (9.7.16.2.1).
inline constexpr int kTcgen05Bytes = 32, kTcgen05Matrix = kTcgen05Problems * kTcgen05Bytes;

// K-major without swizzle (9.7.16.3, 9.7.16.10.6): eight lines of 16 bytes are next to each other. The stride leads to the
// next eight lines, the leading dimension to the next 16 bytes of k.
inline constexpr int kTcgen05Stride = 8 * 16, kTcgen05Leading = kTcgen05Problems * 16;
HM_HOST_DEVICE constexpr int tcgen05_offset(int line, int byte) {
  return byte / 16 * kTcgen05Leading + line / 8 * kTcgen05Stride + line % 8 * 16 + byte % 16;
}

// 9.7.16.4.1: start at bits 0 to 13, leading dimension at 16 to 29, stride at 32 to 45, all in units of 16 bytes; the
// constant 0b001 at 46 to 48; base offset, mode of the leading dimension and swizzle are 0.
HM_HOST_DEVICE constexpr uint64_t tcgen05_matrix(uint32_t shared_address) {
  return (shared_address & 0x3FFFFu) / 16 | uint64_t{kTcgen05Leading / 16} << 16 | uint64_t{kTcgen05Stride / 16} << 32 |
         uint64_t{1} << 46;
}

// 9.7.16.4.2: codes of the operand types in each kind.
HM_HOST_DEVICE constexpr uint32_t tcgen05_type(DType dtype) {
  if (dtype == DType::f32) return 2;   // tf32
  if (dtype == DType::bf16) return 1;  // f16: 0
  if (dtype == DType::e5m2) return 1;  // e4m3: 0
  if (dtype == DType::e2m1) return 1;  // in mxf4 and mxf4nvf4
  return 0;
}
// Bits 4 and 5: type of D (f32: 1) or, with block scales, which byte holds B's (0). 7 to 9 and 10 to 12: types of A and
// B. 17 to 22: N / 8. 23: type of the scales (ue8m0: 1). 24 to 28: M / 16. 29 and 30: which byte holds A's scales (0).
// The rest are zeros: dense, not negated, not transposed, K of mxf4 64.
HM_HOST_DEVICE constexpr uint32_t tcgen05_instruction(const DotRow& row) {
  uint32_t bits = tcgen05_type(row.a) << 7 | tcgen05_type(row.b) << 10 | uint32_t{kTcgen05Problems / 8} << 17 |
                  uint32_t{kTcgen05Problems / 16} << 24;
  if (row.block == 0 && row.out == DType::f32) bits |= 1u << 4;
  if (row.block != 0 && row.scale == DType::e8m0) bits |= 1u << 23;
  return bits;
}

// An address in tensor memory has the lane in its upper half and the column in its lower half (9.7.16.1.1).
HM_HOST_DEVICE constexpr uint32_t tcgen05_lane(int lane) { return static_cast<uint32_t>(lane) << 16; }

// Columns of tensor memory: those of D, and behind them four of scales for A and four for B. An allocation is a power of
// two (9.7.16.7.1).
inline constexpr uint32_t kTcgen05ScalesA = kTcgen05Problems, kTcgen05ScalesB = kTcgen05Problems + 4;
HM_HOST_DEVICE constexpr uint32_t tcgen05_columns(const DotRow& row) {
  return row.block == 0 ? kTcgen05Problems : 2 * kTcgen05Problems;
}
// The line whose scales a lane holds in a column of scales: all four groups of 32 lanes hold the same (9.7.16.10.7).
HM_HOST_DEVICE constexpr int tcgen05_scale_line(int column, int lane) { return column * 32 + lane % 32; }

}  // namespace halfmark::kernels::cuda
