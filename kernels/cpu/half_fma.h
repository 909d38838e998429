// Matmul and the convolutions of f16 operands with fp16 sums: chains of exactly rounded fp16 fused multiply-adds in
// increasing k, at speed. Private to the row "fp16-fma" and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/contraction.h"

namespace halfmark::kernels::half_fma {

// The chains of `rows` rows and `columns` columns over the whole depth, with the instructions of one kind of CPU.
//   left [depth][rows]: the operand as the engine reads it, twice its fp16 code or its fp32 bits; kNone: no term here
//   right [depth][columns]: fp16 codes or fp32
//   sum [rows][columns] in fp32, from +0
struct Engine {
  std::string_view name;
  size_t rows, columns;
  bool codes;  // reads fp16 codes; else fp32
  void (*run)(const uint32_t* left, const void* right, size_t depth, float* sum);
};
// No fp16 number: as two codes they would be equal, as fp32 the low bits would be zero.
inline constexpr uint32_t kNone = 0x7F800001;

std::span<const Engine> engines();  // those this CPU can run, the slowest first; may be empty

// `work` as the row computes it; work.out must have memory.
void contract(const Contraction& work, const Engine& engine);

extern const Engine kAvx2Engine, kAvx512Engine, kNativeEngine;  // on x86-64

}  // namespace halfmark::kernels::half_fma
