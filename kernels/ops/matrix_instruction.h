// The matrix instructions of GPUs by name, as used by `halfmark dot` and the rows of a device.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfmark::kernels {

// Names and extents follow the PTX ISA: mma.sync of shape m16n8k16, wgmma.mma_async with K = 16 (M = 64, any N),
// tcgen05.mma with K = 16. Two instructions of one name differ in their operand types.
enum class MatrixInstruction : uint8_t {
  usual,  // the one that the device's row prefers for these types
  mma_m8n8k4,
  mma_m16n8k4,
  mma_m16n8k8,
  mma_m16n8k16,
  mma_m16n8k32,
  mma_m16n8k64,
  wgmma_k8,
  wgmma_k16,
  wgmma_k32,
  tcgen05_k8,
  tcgen05_k16,
  tcgen05_k32,
  tcgen05_k64,
};

struct MatrixInstructionRow {
  MatrixInstruction instruction;
  std::string_view name;  // "mma.m16n8k16"
  int k;                  // products per instruction
};

std::span<const MatrixInstructionRow> matrix_instructions();  // all except `usual`
std::string_view name_of(MatrixInstruction instruction);
int depth_of(MatrixInstruction instruction);                        // K; 0 for `usual`
MatrixInstruction matrix_instruction_named(std::string_view name);  // throws Error naming the known ones

}  // namespace halfmark::kernels
