// Checks every CUDA, cuBLASLt and cuDNN call: a status other
// than success becomes an Error with the call and the reason.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>
#include <string_view>

#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

// "cudaMalloc" of "cudaMalloc(&memory, size)".
inline std::string called_function(std::string_view call) { return std::string(call.substr(0, call.find('('))); }

inline std::string failure_text(cudaError_t status, std::string_view call) {
  const char* remedy =
      status == cudaErrorDevicesUnavailable
          ? ": perhaps another process has the GPU to itself; end it, or let several use it (nvidia-smi -c DEFAULT)"
          : "";
  return called_function(call) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status) + remedy;
}

inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, so that the next call does not report it again
  throw Error(failure_text(status, call));
}

// For a status that does not matter: otherwise the next launch would report it as its own error.
inline void ignore(cudaError_t status) {
  if (status != cudaSuccess) (void)cudaGetLastError();
}

inline void check(cublasStatus_t status, const char* call) {
  // cublasGetStatusString is in libcublas, which the plugin does not link.
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(called_function(call) + ": " + cublasLtGetStatusString(status));
}

inline void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[256] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  throw Error(called_function(call) + ": " + cudnnGetErrorString(status) +
              (detail[0] ? std::string(", ") + detail : ""));
}

}  // namespace halfmark::kernels::cuda

// Three names for readability; the type of the status selects the overload.
#define HM_CUDA(call) ::halfmark::kernels::cuda::check((call), #call)
#define HM_CUBLAS(call) ::halfmark::kernels::cuda::check((call), #call)
#define HM_CUDNN(call) ::halfmark::kernels::cuda::check((call), #call)
