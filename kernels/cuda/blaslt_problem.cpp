// Products for cublasLt as the rows describe them: matrices, their alignment, and what narrow types need.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

bool fills_16_bytes(DType dtype, int64_t elements) {
  return bytes_for(dtype, static_cast<size_t>(elements) * 2) % 32 == 0;
}

}  // namespace

// cuBLAS documentation, "cublasLtMatmul()": 16 bytes of every dimension and pointer, and the TN format where there is no
// other, which is everywhere for e2m1.
Refusal not_for_narrow(int capability, const BlasltProblem& problem) {
  const DType dtype = problem.a.dtype;
  if (dtype != DType::e4m3 && dtype != DType::e5m2 && dtype != DType::e2m1) return {};
  const bool only_tn = dtype == DType::e2m1 || capability < 100 || capability >= 120;
  if (only_tn && (problem.a.transpose || !problem.b.transpose))
    return "multiplies " + std::string(name_of(dtype)) + " on this GPU only with k contiguous in a and in b";
  for (const auto* one : {&problem.a, &problem.b, &problem.out})
    if (!fills_16_bytes(one->dtype, one->columns) || one->alignment < 16)
      return "multiplies " + std::string(name_of(dtype)) + " only in rows of multiples of 16 bytes";
  return {};
}

void add_to(Signature& key, const BlasltProblem::Matrix& matrix) {
  key.add(static_cast<int64_t>(matrix.dtype)), key.add(matrix.rows), key.add(matrix.columns);
  key.add(int64_t{matrix.transpose}), key.add(int64_t{matrix.alignment});
}

uint32_t alignment_of(const Tensor& tensor) {
  if (tensor.layout() == Layout::any) return 256;
  const auto address = reinterpret_cast<uintptr_t>(tensor.data());
  return address == 0 ? 256 : 1u << std::min(8, std::countr_zero(address));
}

BlasltProblem::Matrix blaslt_matrix(const Tensor& tensor, bool transpose) {
  const Shape& shape = tensor.shape();
  const int last = shape.rank() - 1;
  return {tensor.dtype(), shape[last - 1], shape[last], transpose, alignment_of(tensor)};
}

}  // namespace halfmark::kernels::cuda
