// Fast matmul and convolutions of f16 operands with fp16 sums: chains of exactly rounded fp16 fused multiply-adds in
// increasing k. Private to the row "fp16-fma" and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/contraction.h"

namespace halfmark::kernels::half_fma {

// The chains of `rows` rows and `columns` columns over the whole depth, with one instruction set.
//   left [depth][rows]: the operand in the engine's form: its fp16 code twice, or its fp32 bits; kNone: no term here
//   right [depth][columns]: fp16 codes or fp32
//   sum [rows][columns] in fp32, starting at +0
struct Engine {
  std::string_view name;
  size_t rows, columns;
  bool codes;  // reads fp16 codes; else fp32
  void (*run)(const uint32_t* left, const void* right, size_t depth, float* sum);
};
// Not an fp16 number: its two halves differ, which two copies of a code cannot, and as fp32 its low bits are not zero.
inline constexpr uint32_t kNone = 0x7F800001;

std::span<const Engine> engines();  // the engines this CPU can run, slowest first; may be empty

// Computes `work` as the row does; work.out must have memory.
void contract(const Contraction& work, const Engine& engine);

extern const Engine kAvx2Engine, kAvx512Engine, kNativeEngine;  // on x86-64

}  // namespace halfmark::kernels::half_fma
