#include "kernels/cuda/dot_choice.h"

namespace halfmark::kernels::cuda {
namespace {

bool takes(const DotRow& row, const DotTypes& types) {
  return row.a == types.a && row.b == types.b && row.c == types.c && row.out == types.out && row.block == types.block &&
         (row.block == 0 || row.scale == types.scale);
}

// "e2m1 times e2m1 scaled by e4m3 per 16 plus f32 to f32"
std::string text_of(const DotTypes& types) {
  std::string text = std::string(name_of(types.a)) + " times " + std::string(name_of(types.b));
  if (types.block) text += " scaled by " + std::string(name_of(types.scale)) + " per " + std::to_string(types.block);
  return text + " plus " + std::string(name_of(types.c)) + " to " + std::string(name_of(types.out));
}

std::string sm(int capability) { return "sm_" + std::to_string(capability); }

std::string where(const Reach& reach) {
  if (reach.to == kNewest) return sm(reach.from) + " and newer";
  const char* suffix = reach.specific ? "a" : "";
  if (reach.from == reach.to) return sm(reach.from) + suffix;
  return sm(reach.from) + suffix + " to " + sm(reach.to) + suffix;
}

}  // namespace

DotChoice choose_dot(const DotGpu& gpu, MatrixInstruction instruction, const DotTypes& types) {
  const bool usual = instruction == MatrixInstruction::usual;
  const std::string wanted = text_of(types);
  std::string elsewhere;
  for (const DotRow& row : kDotRows.row) {
    if (!takes(row, types) || (!usual && row.instruction != instruction)) continue;
    const std::string name(name_of(row.instruction));
    // Checks the GPU before its code, which may come from PTX of an older architecture.
    if (gpu.capability < row.reach.from || gpu.capability > row.reach.to) {
      elsewhere += (elsewhere.empty() ? "" : ", ") + name + " (" + where(row.reach) + ")";
      continue;
    }
    if (has(gpu.image, row.reach)) return {&row, {}};
    return {nullptr, name + " of " + wanted + " needs code for " + where(row.reach) + "; this build has it for " +
                         std::string(gpu.built_for) +
                         ": configure with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(gpu.capability)};
  }
  if (!elsewhere.empty())
    return {nullptr, sm(gpu.capability) + " has no " + (usual ? "matrix instruction" : "such instruction") + " for " +
                         wanted + "; other GPUs have " + elsewhere};
  return {nullptr, (usual ? std::string("no matrix instruction") : "no " + std::string(name_of(instruction))) +
                       " takes " + wanted};
}

}  // namespace halfmark::kernels::cuda
