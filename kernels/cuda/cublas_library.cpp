// The handle of cuBLAS, and the call of its products.
#include <memory>
#include <string>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/hardware.h"

namespace halfmark::kernels::cuda {
namespace {

template <class Function>
Function loaded(const char* name) {
  std::string reason;
  void* function = cublas_function(name, reason);
  HM_CHECK(function, reason);
  return reinterpret_cast<Function>(function);
}

// Documentation of cublasSetWorkspace(), "recommended workspace size".
size_t recommended_workspace(int capability) {
  constexpr size_t kMebibyte = size_t{1} << 20;
  if (capability >= 120) return 12 * kMebibyte;
  return (capability >= 90 ? 32 : 4) * kMebibyte;
}

cublasOperation_t operation(const BlasltProblem::Matrix& matrix) {
  return matrix.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

Cublas::Cublas(CudaDevice& device)
    : device_(device), workspace_bytes_(recommended_workspace(device.compute_capability())) {
  const auto create = loaded<Create>("cublasCreate_v2");
  const auto set_stream = loaded<SetStream>("cublasSetStream_v2");
  const auto set_math_mode = loaded<SetMathMode>("cublasSetMathMode");
  const auto get_version = loaded<Version>("cublasGetVersion_v2");
  destroy_ = loaded<Destroy>("cublasDestroy_v2");
  const auto set_workspace = loaded<SetWorkspace>("cublasSetWorkspace_v2");
  gemm_ = loaded<GemmEx>("cublasGemmEx");
  gemm_batched_ = loaded<GemmBatchedEx>("cublasGemmStridedBatchedEx");
  check(create(&handle_), "cublasCreate");
  try {
    check(set_stream(handle_, device.stream()), "cublasSetStream");
    workspace_ = device.allocate(workspace_bytes_);
    // After the stream, which resets it.
    check(set_workspace(handle_, workspace_, workspace_bytes_), "cublasSetWorkspace");
    // Neither tf32 where fp32 was asked for, nor partial sums in the narrow type of a result.
    const auto mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    check(set_math_mode(handle_, mode), "cublasSetMathMode");
    int version = 0;
    check(get_version(handle_, &version), "cublasGetVersion");
    version_ = std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
               std::to_string(version % 100);
  } catch (const Error&) {
    close();
    throw;
  }
}

void Cublas::close() noexcept {
  if (handle_) destroy_(handle_);
  if (workspace_) device_.release(workspace_, workspace_bytes_);
  handle_ = nullptr, workspace_ = nullptr;
}

// By columns the library computes out' = op(b)' op(a)'; a row-major matrix is its own transpose by columns. Scalars are
// read from host memory, which is the default.
cublasStatus_t Cublas::multiply(const CublasProblem& problem, const CublasPointers& p) const {
  const BlasltProblem::Matrix &a = problem.a, &b = problem.b, &out = problem.out;
  const Scalar alpha(problem.scale, p.alpha), beta(problem.scale, p.beta);
  const auto in = blaslt_type(b.dtype), in_a = blaslt_type(a.dtype), result = blaslt_type(out.dtype);
  const int m = static_cast<int>(out.columns), n = static_cast<int>(out.rows),
            k = static_cast<int>(a.transpose ? a.rows : a.columns), ldb = static_cast<int>(b.columns),
            lda = static_cast<int>(a.columns), ldc = static_cast<int>(out.columns);
  if (!problem.is_batched)
    return gemm_(handle_, operation(b), operation(a), m, n, k, alpha.bytes, p.b, in, ldb, p.a, in_a, lda, beta.bytes,
                 p.out, result, ldc, problem.compute, CUBLAS_GEMM_DEFAULT);
  return gemm_batched_(handle_, operation(b), operation(a), m, n, k, alpha.bytes, p.b, in, ldb, b.rows * b.columns, p.a,
                       in_a, lda, a.rows * a.columns, beta.bytes, p.out, result, ldc, out.rows * out.columns,
                       static_cast<int>(problem.batch), problem.compute, CUBLAS_GEMM_DEFAULT);
}

Cublas& cublas_of(const CudaDevice& device) {
  // Opening it takes memory of the device, which does not change what the device is.
  if (!device.cublas) device.cublas = std::make_shared<Cublas>(const_cast<CudaDevice&>(device));
  return *device.cublas;
}

}  // namespace halfmark::kernels::cuda
