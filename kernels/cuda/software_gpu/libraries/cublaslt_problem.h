// A matrix product as descriptors state it, checked against the documentation; without pointers to the matrices.
#pragma once

#include <cstdint>

#include "kernels/cuda/software_gpu/libraries/cublaslt_objects.h"
#include "kernels/cuda/software_gpu/libraries/cublaslt_types.h"

namespace halfmark::kernels::software_gpu::cublaslt {

struct Problem {
  Description description;
  Layout a, b, c, d;
  const Types* types = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int architecture = 0;

  bool transposes(const Layout& layout) const;  // whether A or B enters the product transposed
  bool has_epilogue(uint32_t bit) const { return (description.epilogue & bit) != 0; }
};

// Bits of cublasLtEpilogue_t, which cublasLt.h combines and does not name.
inline constexpr uint32_t kRelu = 2, kBias = 4, kReluGradient = 8, kBiasGradient = 16, kGelu = 32, kGeluGradient = 64,
                          kAux = 128, kBiasGradientA = 256, kBiasGradientB = 512;

// CUBLAS_STATUS_INVALID_VALUE: no descriptor, or descriptors that contradict each other; NOT_SUPPORTED: not in the
// tables of the documentation; ARCH_MISMATCH: in the tables, but not for this architecture.
cublasStatus_t make_problem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, int architecture, Problem& problem);

// Bytes that a number of elements takes; elements of 4 bits are packed.
uint64_t bytes_of(const Layout& layout, int64_t elements);
// Whether leading dimension and stride between matrices are multiples of `bytes`.
bool strides_aligned(const Layout& layout, uint64_t bytes);

}  // namespace halfmark::kernels::software_gpu::cublaslt
