// cuBLAS with a handle on one GPU: cublasGemmEx and cublasGemmStridedBatchedEx, loaded at run time.
#pragma once

#include <cublas_v2.h>

#include <cstdint>
#include <string>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/kept_plans.h"

namespace halfmark::kernels::cuda {

// out[i] = op(a[i]) op(b[i]) (+ beta out[i]), matrices in row-major order, as in BlasltProblem.
struct CublasProblem {
  BlasltProblem::Matrix a, b, out;
  int64_t batch = 1;
  bool is_batched = false;  // by the function for batches, also of one matrix
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  // Of products of f32: whether they must be those of tf32, or of fp32. The function does not say, so it is tried.
  bool rounds_to_tf32 = false;
  std::string promise;  // in words
};

struct CublasPointers {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  double alpha = 1, beta = 0;
};

// What a problem came to when it was tried once on scratch memory.
struct CublasTrial {
  std::string broken, choice;
  const std::string& refusal() const { return broken; }  // empty if it computes what was promised
};

class Cublas {
 public:
  // Throws Error if the library cannot be loaded or opened.
  explicit Cublas(CudaDevice& device);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  void close() noexcept;  // not of a lost device

  cublasStatus_t multiply(const CublasProblem& problem, const CublasPointers& pointers) const;
  const std::string& version() const { return version_; }

  KeptPlans<CublasTrial> trials;

 private:
  using Create = cublasStatus_t (*)(cublasHandle_t*);
  using Destroy = cublasStatus_t (*)(cublasHandle_t);
  using Version = cublasStatus_t (*)(cublasHandle_t, int*);
  using SetStream = cublasStatus_t (*)(cublasHandle_t, cudaStream_t);
  using SetWorkspace = cublasStatus_t (*)(cublasHandle_t, void*, size_t);
  using SetMathMode = cublasStatus_t (*)(cublasHandle_t, cublasMath_t);
  using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                    const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                    cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  using GemmBatchedEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                           const void*, const void*, cudaDataType, int, long long, const void*,
                                           cudaDataType, int, long long, const void*, void*, cudaDataType, int,
                                           long long, int, cublasComputeType_t, cublasGemmAlgo_t);

  CudaDevice& device_;
  cublasHandle_t handle_ = nullptr;
  Destroy destroy_ = nullptr;
  GemmEx gemm_ = nullptr;
  GemmBatchedEx gemm_batched_ = nullptr;
  // The handle's: what a product uses of it is not stated, so it is no part of the memory that is measured. Set here and
  // not left to the library, because one of its own cannot be used while work is recorded.
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  std::string version_;
};

// The device's, opened on first use. Throws Error.
Cublas& cublas_of(const CudaDevice& device);

// Runs the problem once on scratch memory: whether it works, and whether its products are those that were asked for. The
// key must tell problems apart. A fault that the device does not survive is thrown as Error.
const CublasTrial& cublas_trial(const CudaDevice& device, const Signature& key, const CublasProblem& problem);

}  // namespace halfmark::kernels::cuda
