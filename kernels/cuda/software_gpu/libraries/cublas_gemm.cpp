// Products of the stand-in of cuBLAS: what the documentation of cublasGemmEx() and cublasGemmStridedBatchedEx() says of
// types, leading dimensions and statuses. The arithmetic is that of the stand-in of cublasLt.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublas.h"
#include "kernels/cuda/software_gpu/libraries/cublaslt_product.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublas {
namespace {

using cublaslt::Compute;

constexpr cudaDataType_t k16 = CUDA_R_16F, kB16 = CUDA_R_16BF, k32 = CUDA_R_32F, k64 = CUDA_R_64F;
constexpr GemmTypes kGemmTypes[] = {
    {Compute::half, k16, k16, k16},    {Compute::single, k32, kB16, kB16}, {Compute::single, k32, k16, k16},
    {Compute::single, k32, kB16, k32}, {Compute::single, k32, k16, k32},   {Compute::single, k32, k32, k32},
    {Compute::fast, k32, k32, k32},    {Compute::wide, k64, k64, k64},
};

// cublas_api.h: the low bits are one mode, 16 a flag beside it.
constexpr int kModeBits = 0xf;

bool is_operation_of_cublas(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

// "If m, n, k < 0, or if transa, transb != CUBLAS_OP_N, CUBLAS_OP_C, CUBLAS_OP_T, or if lda < max(1, m) ... or alpha or
// beta are NULL, or Atype or Btype or Ctype or algo is not supported": CUBLAS_STATUS_INVALID_VALUE.
bool has_invalid_value(const Gemm& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return true;
  if (!is_operation_of_cublas(g.transpose_a) || !is_operation_of_cublas(g.transpose_b)) return true;
  if (g.lda < std::max(1, g.transpose_a == CUBLAS_OP_N ? g.m : g.k)) return true;
  if (g.ldb < std::max(1, g.transpose_b == CUBLAS_OP_N ? g.k : g.n)) return true;
  if (g.ldc < std::max(1, g.m)) return true;
  if (!g.alpha || !g.beta || !is_algorithm(g.algorithm)) return true;
  for (const cudaDataType type : {g.type_a, g.type_b, g.type_c})
    if (!cublaslt::dtype_of(type)) return true;
  return false;
}

cublaslt::Layout layout_of(cudaDataType type, int rows, int columns, int ld, long long stride, int batch) {
  cublaslt::Layout layout;
  layout.type = static_cast<uint32_t>(type);
  layout.rows = static_cast<uint64_t>(rows), layout.columns = static_cast<uint64_t>(columns);
  layout.ld = ld, layout.batch = batch, layout.batch_stride = stride;
  return layout;
}

// A mode of the handle permits narrower products of single precision.
cublasComputeType_t effective_compute(const Context& context, const Gemm& g) {
  const bool single = g.compute == CUBLAS_COMPUTE_32F && g.type_a == k32;
  if (single && ((context.math_mode & kModeBits) == CUBLAS_TF32_TENSOR_OP_MATH || planted("multiplies-fp32-as-tf32")))
    return CUBLAS_COMPUTE_32F_FAST_TF32;
  if (g.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && planted("multiplies-tf32-as-fp32")) return CUBLAS_COMPUTE_32F;
  return g.compute;
}

// Split-K with partial sums in the type of the result, which the mode of the handle permits unless its flag is set.
bool reduces_narrowly(const Context& context, const Gemm& g) {
  return (context.math_mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == 0 &&
         g.compute == CUBLAS_COMPUTE_32F && g.type_c != k32 && g.k >= 2;
}

uint32_t alignment_of_pointer(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
}

// The fastest, which CUBLAS_GEMM_DEFAULT stands for. Pedantic types use ordinary multiply-adds only.
std::optional<cublaslt::Candidate> algorithm_for(const Context& context, const Gemm& g,
                                                 const cublaslt::Problem& problem) {
  cublaslt::Preference preference;
  preference.reductions =
      reduces_narrowly(context, g) ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  preference.workspace = context.workspace ? context.workspace_bytes : uint64_t{1} << 30;
  preference.align_a = alignment_of_pointer(g.a), preference.align_b = alignment_of_pointer(g.b);
  preference.align_c = preference.align_d = alignment_of_pointer(g.c);
  const std::vector<cublaslt::Candidate> found = cublaslt::candidates(problem, preference);
  if (found.empty()) return std::nullopt;
  if (cublaslt::is_pedantic(g.compute)) {
    for (auto one = found.rbegin(); one != found.rend(); ++one)
      if (one->algorithm.split_k == 1) return *one;
  }
  if (reduces_narrowly(context, g))
    for (const cublaslt::Candidate& one : found)
      if (one.algorithm.split_k > 1) return one;
  return found[0];
}

}  // namespace

const GemmTypes* find_gemm_types(cublasComputeType_t compute, cudaDataType_t a, cudaDataType_t b, cudaDataType_t c) {
  const std::optional<Compute> kind = cublaslt::compute_of(compute);
  for (const GemmTypes& row : kGemmTypes)
    if (kind && row.compute == *kind && row.operands == a && row.operands == b && row.result == c) return &row;
  return nullptr;
}

bool is_math_mode(int mode) {
  const int base = mode & kModeBits;
  const bool known = base == CUBLAS_DEFAULT_MATH || base == CUBLAS_TENSOR_OP_MATH || base == CUBLAS_PEDANTIC_MATH ||
                     base == CUBLAS_TF32_TENSOR_OP_MATH;
  return known && (mode & ~(kModeBits | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)) == 0;
}

bool is_algorithm(int algorithm) {
  return (algorithm >= CUBLAS_GEMM_DEFAULT && algorithm <= CUBLAS_GEMM_ALGO23) ||
         (algorithm >= CUBLAS_GEMM_DEFAULT_TENSOR_OP && algorithm <= CUBLAS_GEMM_ALGO15_TENSOR_OP);
}

cublasStatus_t multiply(const Context& context, const Gemm& g) {
  if (has_invalid_value(g)) return CUBLAS_STATUS_INVALID_VALUE;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (!g.a || !g.b || !g.c) return CUBLAS_STATUS_INVALID_VALUE;
  if (g.k == 0) return CUBLAS_STATUS_NOT_SUPPORTED;  // documented, but not here
  const GemmTypes* types = find_gemm_types(g.compute, g.type_a, g.type_b, g.type_c);
  if (!types) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Results of a batch must not overlap; operands may repeat.
  const auto result_span = static_cast<long long>(g.ldc) * (g.n - 1) + g.m;
  if (g.batch > 1 && g.stride_c < result_span) return CUBLAS_STATUS_INVALID_VALUE;

  cublaslt::Product product;
  cublaslt::Problem& p = product.problem;
  p.architecture = architecture_of(context.device);
  const bool ta = g.transpose_a != CUBLAS_OP_N, tb = g.transpose_b != CUBLAS_OP_N;
  p.a = layout_of(g.type_a, ta ? g.k : g.m, ta ? g.m : g.k, g.lda, g.stride_a, g.batch);
  p.b = layout_of(g.type_b, tb ? g.n : g.k, tb ? g.k : g.n, g.ldb, g.stride_b, g.batch);
  p.c = p.d = layout_of(g.type_c, g.m, g.n, g.ldc, g.stride_c, g.batch);
  p.description.compute = effective_compute(context, g), p.description.scale = types->scale;
  p.description.transpose_a = g.transpose_a, p.description.transpose_b = g.transpose_b;
  p.m = g.m, p.n = g.n, p.k = g.k;
  p.types = cublaslt::find_types(static_cast<cublasComputeType_t>(p.description.compute), types->scale, g.type_a,
                                 g.type_b, g.type_c, g.type_c);
  if (!p.types) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.architecture < p.types->architecture) return CUBLAS_STATUS_ARCH_MISMATCH;
  product.a = g.a, product.b = g.b, product.c = g.c, product.d = g.c;
  if (context.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    product.alpha_pointer = g.alpha, product.beta_pointer = g.beta;
  } else {
    const DType scale = *cublaslt::dtype_of(types->scale);
    product.alpha = load(scale, g.alpha, 0), product.beta = load(scale, g.beta, 0);
  }
  const std::optional<cublaslt::Candidate> candidate = algorithm_for(context, g, p);
  if (!candidate) return CUBLAS_STATUS_NOT_SUPPORTED;
  product.algorithm = candidate->algorithm;
  if (context.workspace) product.workspace = context.workspace, product.workspace_bytes = candidate->workspace;
  enqueue(context.stream, [product] { cublaslt::compute(product); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace halfmark::kernels::software_gpu::cublas
