// The matrix instructions that dot.cu and dot_tcgen05.cu can issue: one row for each name and combination of types, with
// the GPUs that have it and its text in PTX. Host code uses it to decide refusals; device code generates a kernel from
// every row.
#pragma once

#include <cstddef>

#include "kernels/number/dtype.h"
#include "kernels/ops/formulas.h"  // HM_HOST_DEVICE
#include "kernels/ops/matrix_instruction.h"

namespace halfmark::kernels::cuda {

// Compute capabilities, 90 for sm_90. `specific`: only in code compiled for the architecture with suffix "a" (sm_90a),
// which runs on no other architecture.
struct Reach {
  int from, to;
  bool specific;
};

// What device code was compiled for.
struct DotImage {
  int capability;
  bool specific;
};
HM_HOST_DEVICE constexpr bool has(const DotImage& image, const Reach& reach) {
  return reach.from <= image.capability && image.capability <= reach.to && (image.specific || !reach.specific);
}

struct DotRow {
  MatrixInstruction instruction;
  DType a, b, c, out;  // f32 operands are tf32 registers
  int block;           // elements that share a scale; 0: not scaled
  DType scale;
  Reach reach;
};

// The targets are those for which ptxas 13.0 accepts the instruction *and* maps it to the machine instruction itself,
// as read in its SASS. Two special cases: from sm_80 on ptxas turns the f16 mma.m8n8k4 into a subroutine of fused
// multiply-adds, so that is limited to Volta and Turing. FP8 mma on sm_90 and sm_100 is compiler-generated code
// (unpacked to f16, two HMMA and an addition) and is kept: it is what a program that requests it gets.
inline constexpr int kNewest = 999;
inline constexpr Reach kVoltaAndTuring{70, 75, false}, kSinceTuring{75, kNewest, false},
    kSinceAmpere{80, kNewest, false}, kSinceAda{89, kNewest, false}, kSinceHopper{90, kNewest, false},
    kHopper{90, 90, true}, kBlackwell{100, 110, true}, kBlackwellRtx{120, 121, true};

// In order of preference: the first row of given types that a GPU has is its usual instruction for them. Libraries
// multiply FP8 by wgmma on Hopper, and everything of 8 bits and fewer by tcgen05 on sm_100 to sm_110, whose mma.sync
// unpacks FP8 to f16 and adds differently. 16-bit formats and tf32 use the longest mma.sync, which gives the same bits
// as wgmma and tcgen05. FP64 is a chain of fused multiply-adds in every shape, and the smallest shape supports every
// length.
struct DotRows {
  static constexpr size_t kCount = 69;
  DotRow row[kCount];  // not std::array, whose operator[] cannot be used in device code
};
constexpr DotRows dot_rows() {
  using enum DType;
  using enum MatrixInstruction;
  DotRows rows{};
  size_t count = 0;
  const auto add = [&](MatrixInstruction instruction, DType a, DType b, DType c, DType out, const Reach& reach,
                       int block = 0,
                       DType scale = e8m0) { rows.row[count++] = {instruction, a, b, c, out, block, scale, reach}; };
  for (const DType sum : {f32, f16}) {
    add(mma_m16n8k16, f16, f16, sum, sum, kSinceAmpere);
    add(mma_m16n8k8, f16, f16, sum, sum, kSinceTuring);
    add(mma_m8n8k4, f16, f16, sum, sum, kVoltaAndTuring);
    add(wgmma_k16, f16, f16, sum, sum, kHopper);
    add(tcgen05_k16, f16, f16, sum, sum, kBlackwell);
  }
  add(mma_m8n8k4, f16, f16, f16, f32, kVoltaAndTuring);
  add(mma_m16n8k16, bf16, bf16, f32, f32, kSinceAmpere);
  add(mma_m16n8k8, bf16, bf16, f32, f32, kSinceAmpere);
  add(wgmma_k16, bf16, bf16, f32, f32, kHopper);
  add(tcgen05_k16, bf16, bf16, f32, f32, kBlackwell);
  add(mma_m16n8k8, f32, f32, f32, f32, kSinceAmpere);
  add(mma_m16n8k4, f32, f32, f32, f32, kSinceAmpere);
  add(wgmma_k8, f32, f32, f32, f32, kHopper);
  add(tcgen05_k8, f32, f32, f32, f32, kBlackwell);
  add(mma_m8n8k4, f64, f64, f64, f64, kSinceAmpere);
  add(mma_m16n8k4, f64, f64, f64, f64, kSinceHopper);
  add(mma_m16n8k8, f64, f64, f64, f64, kSinceHopper);
  add(mma_m16n8k16, f64, f64, f64, f64, kSinceHopper);
  for (const DType a : {e4m3, e5m2})
    for (const DType b : {e4m3, e5m2}) {
      for (const DType sum : {f32, f16}) {
        add(wgmma_k32, a, b, sum, sum, kHopper);
        add(tcgen05_k32, a, b, sum, sum, kBlackwell);
        add(mma_m16n8k32, a, b, sum, sum, kSinceAda);
        add(mma_m16n8k16, a, b, sum, sum, kSinceAda);
      }
      add(tcgen05_k32, a, b, f32, f32, kBlackwell, 32, e8m0);
      add(mma_m16n8k32, a, b, f32, f32, kBlackwellRtx, 32, e8m0);
    }
  add(tcgen05_k64, e2m1, e2m1, f32, f32, kBlackwell, 32, e8m0);
  add(tcgen05_k64, e2m1, e2m1, f32, f32, kBlackwell, 16, e8m0);
  add(tcgen05_k64, e2m1, e2m1, f32, f32, kBlackwell, 16, e4m3);
  add(mma_m16n8k64, e2m1, e2m1, f32, f32, kBlackwellRtx, 32, e8m0);
  add(mma_m16n8k64, e2m1, e2m1, f32, f32, kBlackwellRtx, 16, e4m3);
  add(mma_m16n8k32, e2m1, e2m1, f32, f32, kBlackwellRtx, 32, e8m0);
  if (count != DotRows::kCount) throw "the extent of the table does not fit its rows";  // never at run time
  return rows;
}
inline constexpr DotRows kDotRows = dot_rows();

HM_HOST_DEVICE constexpr bool is_wgmma(MatrixInstruction instruction) {
  using enum MatrixInstruction;
  return instruction == wgmma_k8 || instruction == wgmma_k16 || instruction == wgmma_k32;
}
HM_HOST_DEVICE constexpr bool is_tcgen05(MatrixInstruction instruction) {
  using enum MatrixInstruction;
  return instruction == tcgen05_k8 || instruction == tcgen05_k16 || instruction == tcgen05_k32 ||
         instruction == tcgen05_k64;
}

// K, and bits per element, as constant expressions (depth_of and bits_of are library functions).
HM_HOST_DEVICE constexpr int dot_depth(MatrixInstruction instruction) {
  using enum MatrixInstruction;
  switch (instruction) {
    case mma_m8n8k4:
    case mma_m16n8k4:
      return 4;
    case mma_m16n8k8:
    case wgmma_k8:
    case tcgen05_k8:
      return 8;
    case mma_m16n8k16:
    case wgmma_k16:
    case tcgen05_k16:
      return 16;
    case mma_m16n8k32:
    case wgmma_k32:
    case tcgen05_k32:
      return 32;
    case mma_m16n8k64:
    case tcgen05_k64:
      return 64;
    case usual:
      return 0;
  }
  return 0;
}
HM_HOST_DEVICE constexpr int dot_bits(DType dtype) {
  if (dtype == DType::f64) return 64;
  if (dtype == DType::f32) return 32;
  if (dtype == DType::f16 || dtype == DType::bf16) return 16;
  if (dtype == DType::e2m1) return 4;
  if (dtype == DType::e4m3 || dtype == DType::e5m2 || dtype == DType::e8m0 || dtype == DType::u8) return 8;
  return 0;
}

// The instruction in PTX, without its operands: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32".
struct DotText {
  static constexpr size_t kSize = 120;
  char text[kSize]{};
  size_t length = 0;
  constexpr void add(const char* s) {
    for (; *s; ++s) text[length++] = *s;
  }
};

constexpr const char* ptx_shape(MatrixInstruction instruction) {
  using enum MatrixInstruction;
  switch (instruction) {
    case mma_m8n8k4:
      return "m8n8k4";
    case mma_m16n8k4:
      return "m16n8k4";
    case mma_m16n8k8:
      return "m16n8k8";
    case mma_m16n8k16:
      return "m16n8k16";
    case mma_m16n8k32:
      return "m16n8k32";
    case mma_m16n8k64:
      return "m16n8k64";
    case wgmma_k8:
      return "m64n8k8";
    case wgmma_k16:
      return "m64n8k16";
    case wgmma_k32:
      return "m64n8k32";
    case tcgen05_k8:  // in the instruction descriptor
    case tcgen05_k16:
    case tcgen05_k32:
    case tcgen05_k64:
    case usual:
      return "";
  }
  return "";
}

constexpr const char* ptx_type(DType dtype) {
  if (dtype == DType::f64) return ".f64";
  if (dtype == DType::f32) return ".f32";
  if (dtype == DType::f16) return ".f16";
  if (dtype == DType::bf16) return ".bf16";
  if (dtype == DType::e4m3) return ".e4m3";
  if (dtype == DType::e5m2) return ".e5m2";
  if (dtype == DType::e2m1) return ".e2m1";
  return "";
}
constexpr const char* ptx_operand(DType dtype) { return dtype == DType::f32 ? ".tf32" : ptx_type(dtype); }

constexpr const char* ptx_scale(DType dtype) {
  if (dtype == DType::e8m0) return ".ue8m0";
  if (dtype == DType::e4m3) return ".ue4m3";
  return "";
}

// A tcgen05.mma names the kind of its operands; the types themselves, and M and N, are in the instruction descriptor.
constexpr const char* tcgen05_kind(const DotRow& row) {
  if (dot_bits(row.a) == 32) return "tf32";
  if (dot_bits(row.a) == 16) return "f16";
  if (!row.block) return "f8f6f4";
  if (dot_bits(row.a) == 8) return "mxf8f6f4.block_scale.scale_vec::1X";
  return row.block == 32 ? "mxf4.block_scale.scale_vec::2X" : "mxf4nvf4.block_scale.scale_vec::4X";
}

constexpr DotText ptx_of(const DotRow& row) {
  DotText text;
  if (is_tcgen05(row.instruction)) {
    text.add("tcgen05.mma.cta_group::1.kind::");
    text.add(tcgen05_kind(row));
    return text;
  }
  const bool wgmma = is_wgmma(row.instruction);
  text.add(wgmma ? "wgmma.mma_async.sync.aligned." : "mma.sync.aligned.");
  text.add(ptx_shape(row.instruction));
  if (!wgmma) text.add(".row.col");
  if (row.block) {
    const int scales = dot_depth(row.instruction) / row.block;  // to a row of the instruction
    text.add(row.instruction == MatrixInstruction::mma_m16n8k32 ? ".kind::mxf8f6f4.block_scale.scale_vec::1X"
             : scales == 2                                      ? ".kind::mxf4.block_scale.scale_vec::2X"
                                                                : ".kind::mxf4nvf4.block_scale.scale_vec::4X");
  }
  text.add(ptx_type(row.out));
  text.add(ptx_operand(row.a));
  text.add(ptx_operand(row.b));
  if (!wgmma) text.add(ptx_type(row.c));  // in wgmma, d is also c
  if (row.block) text.add(ptx_scale(row.scale));
  return text;
}

}  // namespace halfmark::kernels::cuda
