// The functions of cuBLAS that need a handle. Statuses that do not concern a call are those of the stand-in of cublasLt.
#include "kernels/cuda/software_gpu/libraries/cublas.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/cublas_functions.h"
#include "kernels/cuda/software_gpu/libraries/handles.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublas {
namespace {

Handles<cublasHandle_t, Context> contexts;

struct Function {
  std::string_view name;
  void* address;
};

// A requested failure, or the status of the call with the context of the handle.
template <class Call>
cublasStatus_t with_context(const char* name, cublasHandle_t handle, Call call) {
  if (const auto failure = called(name)) return static_cast<cublasStatus_t>(*failure);
  if (planted(name)) return CUBLAS_STATUS_INTERNAL_ERROR;
  std::optional<Context> context = contexts.find(handle);
  if (!context) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cublasStatus_t status = call(*context);
  if (status == CUBLAS_STATUS_SUCCESS) contexts.replace(handle, *context);
  return status;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublas

using namespace halfmark::kernels::software_gpu;
using halfmark::kernels::software_gpu::cublas::Context;
using halfmark::kernels::software_gpu::cublas::Gemm;
using halfmark::kernels::software_gpu::cublas::with_context;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (const auto failure = called("cublasCreate_v2")) return static_cast<cublasStatus_t>(*failure);
  if (planted("cublasCreate_v2")) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  Context context;
  context.device = current_device();
  *handle = halfmark::kernels::software_gpu::cublas::contexts.create(context);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (const auto failure = called("cublasDestroy_v2")) return static_cast<cublasStatus_t>(*failure);
  return halfmark::kernels::software_gpu::cublas::contexts.destroy(handle) ? CUBLAS_STATUS_SUCCESS
                                                                           : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  return with_context("cublasGetVersion_v2", handle, [&](Context&) {
    if (!version) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
  });
}

// "The cuBLAS library workspace is reset to the default one" by this call.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return with_context("cublasSetStream_v2", handle, [&](Context& context) {
    context.stream = stream, context.workspace = nullptr, context.workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
  });
}

// "The workspace pointer must be aligned to at least 256 bytes, otherwise CUBLAS_STATUS_INVALID_VALUE".
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return with_context("cublasSetWorkspace_v2", handle, [&](Context& context) {
    if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    context.workspace = workspace, context.workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return with_context("cublasSetMathMode", handle, [&](Context& context) {
    if (!halfmark::kernels::software_gpu::cublas::is_math_mode(mode)) return CUBLAS_STATUS_INVALID_VALUE;
    context.math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return with_context("cublasGetMathMode", handle, [&](Context& context) {
    if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
    *mode = static_cast<cublasMath_t>(context.math_mode);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return with_context("cublasSetPointerMode_v2", handle, [&](Context& context) {
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_INVALID_VALUE;
    context.pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return with_context("cublasGemmEx", handle, [&](Context& context) {
    Gemm g{ta, tb, m, n, k, alpha, a, b, beta, c, type_a, type_b, type_c, lda, ldb, ldc};
    g.compute = compute, g.algorithm = algorithm;
    return multiply(context, g);
  });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType type_a, int lda,
                                          long long stride_a, const void* b, cudaDataType type_b, int ldb,
                                          long long stride_b, const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm) {
  return with_context("cublasGemmStridedBatchedEx", handle, [&](Context& context) {
    const Gemm g{ta,     tb,     m,   n,   k,   alpha,    a,        b,        beta,  c,       type_a,
                 type_b, type_c, lda, ldb, ldc, stride_a, stride_b, stride_c, batch, compute, algorithm};
    return multiply(context, g);
  });
}

}  // extern "C"

namespace halfmark::kernels::software_gpu::cublas {
namespace {

// Of the overloads in cublas_v2.h, those with this compute type.
using GemmFunction = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                        const void*, const void*, cudaDataType, int, const void*, cudaDataType, int,
                                        const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
using BatchedFunction = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                           const void*, const void*, cudaDataType, int, long long, const void*,
                                           cudaDataType, int, long long, const void*, void*, cudaDataType, int,
                                           long long, int, cublasComputeType_t, cublasGemmAlgo_t);

template <class F>
void* address(F function) {
  return reinterpret_cast<void*>(function);
}

const std::vector<Function>& functions() {
  static const std::vector<Function> all = {
      {"cublasCreate_v2", address(&cublasCreate_v2)},
      {"cublasDestroy_v2", address(&cublasDestroy_v2)},
      {"cublasGetVersion_v2", address(&cublasGetVersion_v2)},
      {"cublasSetStream_v2", address(&cublasSetStream_v2)},
      {"cublasSetWorkspace_v2", address(&cublasSetWorkspace_v2)},
      {"cublasSetMathMode", address(&cublasSetMathMode)},
      {"cublasGetMathMode", address(&cublasGetMathMode)},
      {"cublasSetPointerMode_v2", address(&cublasSetPointerMode_v2)},
      {"cublasGemmEx", address<GemmFunction>(&::cublasGemmEx)},
      {"cublasGemmStridedBatchedEx", address<BatchedFunction>(&::cublasGemmStridedBatchedEx)},
  };
  return all;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublas

namespace halfmark::kernels::software_gpu {

void* cublas_function(std::string_view name) {
  if (planted("no-cublas")) return nullptr;
  for (const cublas::Function& one : cublas::functions())
    if (one.name == name) return one.address;
  return nullptr;
}

std::vector<std::string_view> cublas_function_names() {
  std::vector<std::string_view> names;
  for (const cublas::Function& one : cublas::functions()) names.push_back(one.name);
  return names;
}

}  // namespace halfmark::kernels::software_gpu
