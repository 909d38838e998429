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
  bool device_factor = false;  // alpha and beta are floats in device memory
};

struct BlasltPointers {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  const void *scale_a = nullptr, *scale_b = nullptr;
  const float* factor = nullptr;  // of device_factor: alpha, then 0
  double alpha = 1, beta = 0;     // otherwise
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

// What fp8 and e2m1 need of the matrices, which the library answers with "not supported".
Refusal not_for_narrow(int capability, const BlasltProblem& problem);

// A failure of a call is the reason of a refusal; a fault that the device does not survive is thrown as Error.
std::unique_ptr<BlasltPlan> make_blaslt_plan(CudaDevice& device, const BlasltProblem& problem);

// The plan of a problem, made on first use and kept with the device. The key must tell problems apart.
const BlasltPlan& blaslt_plan(const Device& device, const Signature& key, const BlasltProblem& problem);
void add_to(Signature& key, const BlasltProblem::Matrix& matrix);

uint32_t alignment_of(const Tensor& tensor);  // 256 for one without memory yet

}  // namespace halfmark::kernels::cuda
