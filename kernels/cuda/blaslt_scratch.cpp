#include "kernels/cuda/blaslt_scratch.h"

#include <cmath>
#include <cstdint>

namespace halfmark::kernels::cuda {
namespace {

// Of a scale near 1. Those that are no codes are f32.
int byte_of_scales(cublasLtMatmulMatrixScale_t mode) {
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) return 0x7f;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3) return 0x38;
  return 0x3f;  // 0.747
}

}  // namespace

BlasltScratch::BlasltScratch(CudaDevice& device, Trial& trial, const BlasltProblem& problem)
    : device_(device), trial_(trial), problem_(problem) {
  pointers_.a = trial.memory(bytes(problem.a), kTriedByte);
  pointers_.b = trial.memory(bytes(problem.b), kSecondByte);
  pointers_.out = trial.memory(bytes(problem.out), 0);
  if (problem.scale_bytes_a) pointers_.scale_a = trial.memory(problem.scale_bytes_a, 0);
  if (problem.scale_bytes_b) pointers_.scale_b = trial.memory(problem.scale_bytes_b, 0);
  // What forward has kept lets the first element pass.
  if (problem.bias_bytes) pointers_.bias = aligned(problem.bias_bytes, problem.bias_alignment, 0);
  if (problem.aux_bytes) pointers_.aux = aligned(problem.aux_bytes, problem.aux_alignment, kTriedByte);
  if (problem.device_factor) {
    constexpr int kByteOfFactor = 0x3c;
    auto* factor = static_cast<float*>(trial.memory(2 * sizeof(float), 0));
    trial.set(factor, sizeof(float), kByteOfFactor);
    pointers_.factor = factor;
  }
}

size_t BlasltScratch::elements(const BlasltProblem::Matrix& matrix) const {
  return static_cast<size_t>(problem_.batch * matrix.rows * matrix.columns);
}

// No better aligned than the operand: the library may look.
void* BlasltScratch::aligned(size_t bytes, uint32_t alignment, int byte) const {
  const size_t offset = alignment < 256 ? alignment : 0;
  return static_cast<std::byte*>(trial_.memory(bytes + offset, byte)) + offset;
}

void BlasltScratch::set_constants() const {
  fill_a(kTriedByte), trial_.set(memory_b(), bytes(problem_.b), kSecondByte);
  set_scales(false);
}

void BlasltScratch::set_random() const {
  trial_.set_random(memory_a(), problem_.a.dtype, elements(problem_.a), 1);
  trial_.set_random(memory_b(), problem_.b.dtype, elements(problem_.b), 2);
  set_scales(true);
}

void BlasltScratch::set_scales(bool to_one) const {
  const auto set = [&](const void* scales, size_t bytes, cublasLtMatmulMatrixScale_t mode) {
    if (scales) trial_.set(const_cast<void*>(scales), bytes, to_one ? byte_of_scales(mode) : 0);
  };
  set(pointers_.scale_a, problem_.scale_bytes_a, problem_.mode_a);
  set(pointers_.scale_b, problem_.scale_bytes_b, problem_.mode_b);
}

void BlasltScratch::fill_a(int byte) const { trial_.set(memory_a(), bytes(problem_.a), byte); }

double BlasltScratch::first_result() const {
  const DType dtype = problem_.out.dtype;
  unsigned char bytes[8] = {};
  device_.copy_out(bytes, pointers_.out, size_of(dtype));
  return load(dtype, bytes, 0);
}

bool BlasltScratch::has_range() const {
  const auto depth = static_cast<double>(problem_.a.transpose ? problem_.a.rows : problem_.a.columns);
  const double wanted = depth * number_of(DType::bf16, kTriedByte) * number_of(DType::bf16, kSecondByte);
  return std::fabs(first_result() - wanted) <= wanted / 16;
}

// A single product; the others are 0.
bool BlasltScratch::rounds_to_tf32(const std::function<void()>& multiply) const {
  constexpr int kOtherByte = 0x3f;  // to nearest or cut, the product with the other byte's number changes by 2^-13
  fill_a(0), trial_.set(memory_a(), sizeof(float), kTriedByte);
  trial_.set(memory_b(), bytes(problem_.b), kOtherByte);
  multiply();
  const double found = first_result();
  set_constants();
  const double product = number_of(DType::f32, kTriedByte) * number_of(DType::f32, kOtherByte);
  return std::fabs(found - product) > 0x1p-16 * product && std::fabs(found - product) < 0x1p-8 * product;
}

}  // namespace halfmark::kernels::cuda
