// The operands on which algorithms of cublasLt are tried, and what their results show of the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {

class BlasltScratch {
 public:
  BlasltScratch(CudaDevice& device, Trial& trial, const BlasltProblem& problem);  // throws Error without enough memory
  const BlasltPointers& pointers() const { return pointers_; }

  // Every element of a is one number, and every element of b another; scales are 0.
  void set_constants() const;
  // Random numbers and scales near 1, for times: how fast a GPU runs depends on how many bits change.
  void set_random() const;
  void fill_a(int byte) const;

  double first_result() const;
  // After a product of the constants of bf16: whether it is the sum of products that fp16 would have made infinite or 0.
  bool has_range() const;
  // Whether a product of two fp32 numbers that tf32 does not hold differs from theirs. Leaves the constants.
  bool rounds_to_tf32(const std::function<void()>& multiply) const;

 private:
  void* memory_a() const { return const_cast<void*>(pointers_.a); }
  void* memory_b() const { return const_cast<void*>(pointers_.b); }
  size_t elements(const BlasltProblem::Matrix& matrix) const;
  size_t bytes(const BlasltProblem::Matrix& matrix) const { return bytes_for(matrix.dtype, elements(matrix)); }
  void* aligned(size_t bytes, uint32_t alignment, int byte) const;
  void set_scales(bool to_one) const;

  CudaDevice& device_;
  Trial& trial_;
  const BlasltProblem& problem_;
  BlasltPointers pointers_;
};

}  // namespace halfmark::kernels::cuda
