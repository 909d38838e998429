// A product by cublasLt as it is prepared once for a shape: descriptors, the algorithm that keeps the promised arithmetic
// and is the fastest, and its record. Every candidate is run on scratch memory first, so that an algorithm that fails is a
// refusal and not the end of a case.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/blaslt_arithmetic.h"
#include "kernels/cuda/cuda_device.h"

namespace halfmark::kernels::cuda {

// out[i] = op(a[i]) op(b[i]) (+ beta out[i]), matrices in row-major order. cublasLt stores them by column: it computes
// out' = op(b)' op(a)', so its A is b and its B is a.
struct BlasltProblem {
  struct Matrix {
    DType dtype = DType::f32;
    int64_t rows = 0, columns = 0;  // as stored
    bool transpose = false;
    uint32_t alignment = 256;  // bytes, at most 256
  };
  BlasltArithmetic arithmetic;
  Matrix a, b, out;
  int64_t batch = 1;  // matrices, one after the other
  bool fast_accumulate = false;
  // Scales of fp8 and e2m1: how they are stored (scaled_layout.cuh), and the bytes that they take; 0: there is none.
  cublasLtMatmulMatrixScale_t mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                              mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  size_t scale_bytes_a = 0, scale_bytes_b = 0;
  // What follows the product, in the library's terms. Its bias has an entry for each column of `out`, or is the gradient of
  // one. Its auxiliary matrix is what forward keeps for backward: rows of `out`, aux_ld elements apart (of the mask of
  // ReLU: bits).
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  size_t bias_bytes = 0, aux_bytes = 0;                // 0: there is none
  uint32_t bias_alignment = 256, aux_alignment = 256;  // as those of matrices
  DType bias_type = DType::f32;
  int64_t aux_ld = 0;
  bool device_factor = false;  // alpha and beta are floats in device memory
};

struct BlasltPointers {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  const void *scale_a = nullptr, *scale_b = nullptr;
  void *bias = nullptr, *aux = nullptr;  // read or written, as the epilogue says
  const float* factor = nullptr;         // of device_factor: alpha, then 0
  double alpha = 1, beta = 0;            // otherwise
};

class BlasltPlan {
 public:
  virtual ~BlasltPlan() = default;
  const std::string& refusal() const { return refusal_; }  // empty if there is an algorithm
  const std::string& choice() const { return choice_; }    // Kernel::choice
  size_t workspace_bytes() const { return workspace_; }
  virtual void run(const CudaDevice& device, const BlasltPointers& pointers, void* workspace) const = 0;

 protected:
  std::string refusal_, choice_;
  size_t workspace_ = 0;
};

// alpha or beta in the scale type of a product.
struct Scalar {
  alignas(8) unsigned char bytes[8];
  Scalar(cudaDataType_t type, double value) {
    store(type == CUDA_R_64F ? DType::f64 : type == CUDA_R_16F ? DType::f16 : DType::f32, bytes, 0, value);
  }
};

// What fp8 and e2m1 need of the matrices, which the library answers with "not supported".
Refusal not_for_narrow(int capability, const BlasltProblem& problem);

// A failure of a call is the reason of a refusal; a fault that the device does not survive is thrown as Error.
std::unique_ptr<BlasltPlan> make_blaslt_plan(CudaDevice& device, const BlasltProblem& problem);

// The plan of a problem, made on first use and kept with the device. The key must tell problems apart.
const BlasltPlan& blaslt_plan(const Device& device, const Signature& key, const BlasltProblem& problem);
void add_to(Signature& key, const BlasltProblem::Matrix& matrix);
BlasltProblem::Matrix blaslt_matrix(const Tensor& tensor, bool transpose);  // the last two axes

uint32_t alignment_of(const Tensor& tensor);  // 256 for one without memory yet

}  // namespace halfmark::kernels::cuda
