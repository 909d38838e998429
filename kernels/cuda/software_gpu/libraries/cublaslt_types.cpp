#include "kernels/cuda/software_gpu/libraries/cublaslt_types.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

constexpr cudaDataType_t k16 = CUDA_R_16F, kB16 = CUDA_R_16BF, k32 = CUDA_R_32F, k64 = CUDA_R_64F;
constexpr cudaDataType_t kE4 = CUDA_R_8F_E4M3, kE5 = CUDA_R_8F_E5M2, kE2 = CUDA_R_4F_E2M1;

// compute, scale, A, B, C, D, bias, first architecture. BF16 and TF32 matrix instructions exist from sm_80 on, FP8 from
// sm_89, FP4 and block scales of MX from sm_100 (PTX ISA 9.0, mma and tcgen05.mma, "Target ISA notes").
constexpr Types kTypes[] = {
    // "When A, B, C, and D are Regular Column- or Row-major Matrices"
    {Compute::half, k16, k16, k16, k16, k16, k16, 75},
    {Compute::single, k32, kB16, kB16, kB16, kB16, kB16, 80},
    {Compute::single, k32, k16, k16, k16, k16, k16, 75},
    {Compute::single, k32, kB16, kB16, k32, k32, k32, 80},
    {Compute::single, k32, k16, k16, k32, k32, k32, 75},
    {Compute::single, k32, k32, k32, k32, k32, k32, 75},
    {Compute::fast, k32, k32, k32, k32, k32, k32, 75},
    {Compute::wide, k64, k64, k64, k64, k64, k64, 75},
    // "To use FP8 kernels"; E5M2 times E5M2 is not listed.
    {Compute::single, k32, kE4, kE4, kB16, kB16, kB16, 89},
    {Compute::single, k32, kE4, kE4, kB16, kE4, kB16, 89},
    {Compute::single, k32, kE4, kE4, k16, kE4, k16, 89},
    {Compute::single, k32, kE4, kE4, k16, k16, k16, 89},
    {Compute::single, k32, kE4, kE4, k32, k32, kB16, 89},
    {Compute::single, k32, kE4, kE5, kB16, kB16, kB16, 89},
    {Compute::single, k32, kE4, kE5, kB16, kE4, kB16, 89},
    {Compute::single, k32, kE4, kE5, kB16, kE5, kB16, 89},
    {Compute::single, k32, kE4, kE5, k16, kE4, k16, 89},
    {Compute::single, k32, kE4, kE5, k16, kE5, k16, 89},
    {Compute::single, k32, kE4, kE5, k16, k16, k16, 89},
    {Compute::single, k32, kE4, kE5, k32, k32, kB16, 89},
    {Compute::single, k32, kE5, kE4, kB16, kB16, kB16, 89},
    {Compute::single, k32, kE5, kE4, kB16, kE4, kB16, 89},
    {Compute::single, k32, kE5, kE4, kB16, kE5, kB16, 89},
    {Compute::single, k32, kE5, kE4, k16, kE4, k16, 89},
    {Compute::single, k32, kE5, kE4, k16, kE5, k16, 89},
    {Compute::single, k32, kE5, kE4, k16, k16, k16, 89},
    {Compute::single, k32, kE5, kE4, k32, k32, kB16, 89},
    // "To use FP4 kernels"
    {Compute::single, k32, kE2, kE2, kB16, kB16, kB16, 100},
    {Compute::single, k32, kE2, kE2, kB16, kE2, kB16, 100},
    {Compute::single, k32, kE2, kE2, k16, k16, k16, 100},
    {Compute::single, k32, kE2, kE2, k16, kE2, k16, 100},
    {Compute::single, k32, kE2, kE2, k32, k32, kB16, 100},
};

// Table of scaling modes. FP4 has no scaling mode but blocks of 16.
struct ScaleMode {
  int mode;
  bool fp4;         // else FP8
  int first, last;  // architectures
};
constexpr ScaleMode kScaleModes[] = {
    {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, false, 89, 1000},
    {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, false, 90, 90},
    {CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, false, 90, 90},
    {CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, false, 90, 90},
    {CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, false, 100, 1000},
    {CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, true, 100, 1000},
};

struct ComputeType {
  cublasComputeType_t type;
  Compute compute;
  bool pedantic;
};
constexpr ComputeType kComputeTypes[] = {
    {CUBLAS_COMPUTE_16F, Compute::half, false},           {CUBLAS_COMPUTE_16F_PEDANTIC, Compute::half, true},
    {CUBLAS_COMPUTE_32F, Compute::single, false},         {CUBLAS_COMPUTE_32F_PEDANTIC, Compute::single, true},
    {CUBLAS_COMPUTE_32F_FAST_16F, Compute::fast, false},  {CUBLAS_COMPUTE_32F_FAST_16BF, Compute::fast, false},
    {CUBLAS_COMPUTE_32F_FAST_TF32, Compute::fast, false}, {CUBLAS_COMPUTE_64F, Compute::wide, false},
    {CUBLAS_COMPUTE_64F_PEDANTIC, Compute::wide, true},
};

const ComputeType* find_compute(cublasComputeType_t type) {
  for (const ComputeType& row : kComputeTypes)
    if (row.type == type) return &row;
  return nullptr;
}

}  // namespace

std::optional<Compute> compute_of(cublasComputeType_t type) {
  const ComputeType* row = find_compute(type);
  return row ? std::optional(row->compute) : std::nullopt;
}

bool is_pedantic(cublasComputeType_t type) {
  const ComputeType* row = find_compute(type);
  return row && row->pedantic;
}

std::optional<DType> dtype_of(cudaDataType_t type) {
  if (type == CUDA_R_64F) return DType::f64;
  if (type == CUDA_R_32F) return DType::f32;
  if (type == CUDA_R_16F) return DType::f16;
  if (type == CUDA_R_16BF) return DType::bf16;
  if (type == CUDA_R_8F_E4M3) return DType::e4m3;
  if (type == CUDA_R_8F_E5M2) return DType::e5m2;
  if (type == CUDA_R_4F_E2M1) return DType::e2m1;
  return std::nullopt;
}

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
bool is_fp4(cudaDataType_t type) { return type == CUDA_R_4F_E2M1; }

bool Types::narrow() const { return is_fp8(a) || is_fp4(a); }

std::span<const Types> types() { return kTypes; }

const Types* find_types(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                        cudaDataType_t c, cudaDataType_t d) {
  const std::optional<Compute> kind = compute_of(compute);
  if (!kind) return nullptr;
  for (const Types& row : kTypes)
    if (row.compute == *kind && row.scale == scale && row.a == a && row.b == b && row.c == c && row.d == d)
      return row.narrow() && is_pedantic(compute) ? nullptr : &row;
  return nullptr;
}

bool has_scale_mode(cudaDataType_t type, int mode, int architecture) {
  if (!is_fp8(type) && !is_fp4(type)) return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  for (const ScaleMode& row : kScaleModes)
    if (row.mode == mode && row.fp4 == is_fp4(type)) return architecture >= row.first && architecture <= row.last;
  return false;
}

// A and B have the same mode, but blocks of 128 along k go with blocks of 128 x 128, and two of these do not.
bool may_pair(int mode_a, int mode_b) {
  constexpr int kVector = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, kBlock = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  if (mode_a == kBlock && mode_b == kBlock) return false;
  if ((mode_a == kVector && mode_b == kBlock) || (mode_a == kBlock && mode_b == kVector)) return true;
  return mode_a == mode_b;
}

int scale_block(int mode) {
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3) return 16;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) return 32;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return 128;
  return 0;
}

}  // namespace halfmark::kernels::software_gpu::cublaslt
