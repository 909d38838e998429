// What a product by cublasLt promises about its arithmetic, in the terms of the library. Compute types only permit:
// FAST_TF32 also fp32, COMPUTE_16F also wider sums. What an algorithm does is in its numerical flags
// (cublasLtNumericalImplFlags_t), which the heuristic is asked for and every algorithm is checked by.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

struct BlasltArithmetic {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;  // of alpha and beta
  // CUBLASLT_NUMERICAL_IMPL_FLAGS_*. An algorithm has one of `operations`, exactly `sums`, and among its inputs one that
  // holds the numbers of a and one that holds those of b.
  uint64_t operations = 0, sums = 0, inputs_a = 0, inputs_b = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;  // of partial sums
  int split_k = 0;                                       // 0: the library chooses
  bool may_not_state_inputs = false;                     // e2m1 has no flag; for tf32 it must be proved
  // A library has been seen to report fp16 inputs for an algorithm on bf16. Such an algorithm must multiply numbers that
  // fp16 does not hold before it is used.
  bool must_prove_range = false;
  // For tf32 a library may report fp32 inputs of matrix instructions, which read fp32 as tf32, or none, or multiply-adds
  // with tf32 inputs: cublasLt 13.1 does so for those by wgmma on sm_90, twice as fast as the others. Such an algorithm must
  // round a number that tf32 does not hold.
  bool must_prove_tf32 = false;
};

// The request for products of `depth` terms, or why there is none. `capability`: 90 for sm_90.
Refusal blaslt_arithmetic(int capability, DType a, DType b, DType out, const Math& math, int64_t depth,
                          BlasltArithmetic& result);

// CUBLASLT_MATMUL_PREF_IMPL_MASK of the requests, each for the case that the one before gives nothing. A mask that allows
// both multiply-adds and fp32 inputs would fill the list with products in fp32.
std::vector<uint64_t> implementation_masks(const BlasltArithmetic& arithmetic);
uint64_t allowed_flags(const BlasltArithmetic& arithmetic);  // those of all masks
// What of the promise an algorithm with these flags does not keep; empty: nothing.
std::string broken_promise(const BlasltArithmetic& arithmetic, uint64_t flags);
bool must_prove_range(const BlasltArithmetic& arithmetic, uint64_t flags);
bool must_prove_tf32(const BlasltArithmetic& arithmetic, uint64_t flags);
std::string text_of_flags(uint64_t flags);  // "HMMA, sums fp32, inputs bf16"

cudaDataType_t blaslt_type(DType dtype);  // throws Error for a dtype that the library's rows do not take

}  // namespace halfmark::kernels::cuda
