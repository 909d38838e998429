// The stand-in of cuBLAS: handles, and the products that the plugin calls.
#pragma once

#include <cublas_v2.h>

#include "kernels/cuda/software_gpu/libraries/cublaslt_types.h"

namespace halfmark::kernels::software_gpu::cublas {

// A row of the table at cublasGemmEx(), cuBLAS documentation 13.0: A and B have one type. Not here: integers, complex
// numbers, emulated FP32 and FP64.
struct GemmTypes {
  cublaslt::Compute compute;
  cudaDataType_t scale, operands, result;
};
// Null: not in the table.
const GemmTypes* find_gemm_types(cublasComputeType_t compute, cudaDataType_t a, cudaDataType_t b, cudaDataType_t c);

bool is_math_mode(int mode);
bool is_algorithm(int algorithm);

// What a handle holds.
struct Context {
  int device = 0;
  cudaStream_t stream = nullptr;
  int math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;  // null: the library's own, which is as large as it needs to be
  size_t workspace_bytes = 0;
};

// The arguments of both functions; one matrix: `batch` 1.
struct Gemm {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  int m = 0, n = 0, k = 0;
  const void *alpha = nullptr, *a = nullptr, *b = nullptr, *beta = nullptr;
  void* c = nullptr;
  cudaDataType type_a = CUDA_R_32F, type_b = CUDA_R_32F, type_c = CUDA_R_32F;
  int lda = 0, ldb = 0, ldc = 0;
  long long stride_a = 0, stride_b = 0, stride_c = 0;
  int batch = 1;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasGemmAlgo_t algorithm = CUBLAS_GEMM_DEFAULT;
};

// Checks the arguments and enqueues the product.
cublasStatus_t multiply(const Context& context, const Gemm& gemm);

}  // namespace halfmark::kernels::software_gpu::cublas
