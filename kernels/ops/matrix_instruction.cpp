#include "kernels/ops/matrix_instruction.h"

#include <array>
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

using enum MatrixInstruction;
constexpr std::array<MatrixInstructionRow, 13> kInstructions{{
    {mma_m8n8k4, "mma.m8n8k4", 4},
    {mma_m16n8k4, "mma.m16n8k4", 4},
    {mma_m16n8k8, "mma.m16n8k8", 8},
    {mma_m16n8k16, "mma.m16n8k16", 16},
    {mma_m16n8k32, "mma.m16n8k32", 32},
    {mma_m16n8k64, "mma.m16n8k64", 64},
    {wgmma_k8, "wgmma.k8", 8},
    {wgmma_k16, "wgmma.k16", 16},
    {wgmma_k32, "wgmma.k32", 32},
    {tcgen05_k8, "tcgen05.k8", 8},
    {tcgen05_k16, "tcgen05.k16", 16},
    {tcgen05_k32, "tcgen05.k32", 32},
    {tcgen05_k64, "tcgen05.k64", 64},
}};

}  // namespace

std::span<const MatrixInstructionRow> matrix_instructions() { return kInstructions; }

std::string_view name_of(MatrixInstruction instruction) {
  for (const MatrixInstructionRow& row : kInstructions)
    if (row.instruction == instruction) return row.name;
  return "usual";
}

int depth_of(MatrixInstruction instruction) {
  for (const MatrixInstructionRow& row : kInstructions)
    if (row.instruction == instruction) return row.k;
  return 0;
}

MatrixInstruction matrix_instruction_named(std::string_view name) {
  return named("instruction", kInstructions, name).instruction;
}

}  // namespace halfmark::kernels
