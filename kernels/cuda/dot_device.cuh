// What the kernels of dot.cu and dot_tcgen05.cu share.
#pragma once

#include <cstdint>

#include "kernels/cuda/dot.h"

namespace halfmark::kernels::cuda {

// Whether this compilation pass generates architecture-specific code (sm_90a, sm_100a, ...). False in the host pass.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
constexpr bool kSpecific = true;
#elif defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM110_ALL)
constexpr bool kSpecific = true;
#else
constexpr bool kSpecific = false;
#endif
#ifdef __CUDA_ARCH__
constexpr DotImage kImage{__CUDA_ARCH__ / 10, kSpecific};
#else
constexpr DotImage kImage{0, kSpecific};
#endif

// The codes of the scales of one instruction, the first in the lowest byte; zeros if there is no such problem.
template <size_t kRow>
__device__ __forceinline__ uint32_t scales(const void* operand, const DotArgs& s, uint32_t problem, uint32_t k) {
  constexpr DotRow row = kDotRows.row[kRow];
  uint32_t codes = 0;
  if (problem >= s.n) return codes;
  const auto* bytes = static_cast<const unsigned char*>(operand) + (size_t{problem} * s.k + k) / row.block;
#pragma unroll
  for (int i = 0; i < dot_depth(row.instruction) / row.block; ++i) codes |= uint32_t{bytes[i]} << 8 * i;
  return codes;
}

__device__ __forceinline__ int32_t multiprocessor() {
  int32_t id;
  asm("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

}  // namespace halfmark::kernels::cuda
