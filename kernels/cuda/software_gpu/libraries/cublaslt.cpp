// The functions of cublasLt that need a handle or run something.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_product.h"
#include "kernels/cuda/software_gpu/libraries/handles.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

constexpr cublasStatus_t kSuccess = CUBLAS_STATUS_SUCCESS, kInvalid = CUBLAS_STATUS_INVALID_VALUE;
Handles<cublasLtHandle_t, int> handles;  // the device of each

// "If no heuristic function available for current configuration", also for another architecture: CUBLAS_STATUS_NOT_SUPPORTED.
cublasStatus_t as_heuristic(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ARCH_MISMATCH ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

struct Name {
  cublasStatus_t status;
  const char *name, *text;
};
// As cublasLt 13.1 answers.
constexpr Name kNames[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};
constexpr const char* kUnknownName = "unrecognized status";

bool aligned(const void* pointer, uint64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

bool same(const Layout& a, const Layout& b) {
  return a.type == b.type && a.order == b.order && a.rows == b.rows && a.columns == b.columns && a.ld == b.ld &&
         a.batch == b.batch && a.batch_stride == b.batch_stride;
}

double host_scalar(const void* pointer, cudaDataType_t type) { return load(*dtype_of(type), pointer, 0); }

// The algorithm of the caller, or for null the first of the heuristic that the pointers and the workspace allow.
cublasStatus_t choose(Product& product, const cublasLtMatmulAlgo_t* given, size_t workspace_bytes) {
  const Problem& p = product.problem;
  uint64_t needed = 0;
  if (given) {
    const auto algorithm = value_of<Algorithm>(given);
    if (!algorithm) return kInvalid;
    if (const cublasStatus_t status = check_algorithm(p, *algorithm, needed); status != kSuccess) return status;
    product.algorithm = *algorithm;
  } else {
    Preference preference;
    preference.workspace = product.workspace ? workspace_bytes : 0;
    const auto of = [](const void* pointer) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
      return address ? static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256)) : 256u;
    };
    preference.align_a = of(product.a), preference.align_b = of(product.b);
    preference.align_c = of(product.c), preference.align_d = of(product.d);
    const std::vector<Candidate> found = candidates(p, preference);
    if (found.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
    product.algorithm = found[0].algorithm, needed = found[0].workspace;
  }
  // cublasLt.h at cublasLtMatmul(): INVALID_VALUE "when workspaceSizeInBytes is less than workspace required by
  // configured algo".
  if (needed > workspace_bytes || (needed && !product.workspace)) return kInvalid;
  product.workspace_bytes = needed;
  return kSuccess;
}

// cublasLt.h at cublasLtMatmulAlgoCheck(): a checked algorithm still "will fail if e.g. buffers are not correctly
// aligned". The status is not documented; the real library answers NOT_SUPPORTED (pytorch issue 92201).
cublasStatus_t check_alignment(const Product& product) {
  const Problem& p = product.problem;
  const auto fits = [&](const void* pointer, const Layout& layout) {
    return aligned(pointer, alignment_of(product.algorithm, static_cast<cudaDataType_t>(layout.type)));
  };
  if (!fits(product.a, p.a) || !fits(product.b, p.b) || !fits(product.c, p.c) || !fits(product.d, p.d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Documentation of cublasLtMatmul(), `workspace`: "Must be 256B aligned (i.e. lowest 8 bits of address must be 0)".
  if (!aligned(product.workspace, 256)) return kInvalid;
  // "Block Scaling Factors Layout": the starting address is a multiple of 16 bytes.
  const Description& d = p.description;
  if (scale_block(d.mode_a) && (!aligned(d.scale_a, 16) || !aligned(d.scale_b, 16))) return kInvalid;
  return kSuccess;
}

cublasStatus_t matmul(cublasLtHandle_t handle, Product& product, cublasLtMatmulDesc_t description, const void* alpha,
                      const void* beta, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                      cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm, size_t workspace_bytes,
                      cudaStream_t stream) {
  const std::optional<int> device = device_of(handle);
  if (!device) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!alpha || !beta || !product.a || !product.b || !product.d) return kInvalid;
  // "A handle is tied to the device that was current when it was created" (section "cuBLASLt Context").
  if (*device != software_gpu::device_of(stream)) return kInvalid;
  Problem& p = product.problem;
  if (const cublasStatus_t status = make_problem(description, a, b, c, d, architecture_of(*device), p);
      status != kSuccess)
    return status;
  if (p.description.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE)
    product.alpha_pointer = alpha, product.beta_pointer = beta;
  else
    product.alpha = host_scalar(alpha, p.types->scale), product.beta = host_scalar(beta, p.types->scale);
  // Where beta is zero, C is not read; nothing says that it may not be null then.
  if (!product.c && (product.beta_pointer || product.beta != 0)) return kInvalid;
  // "In-place: C == D and Cdesc == Ddesc".
  if (product.c == product.d && !same(p.c, p.d)) return kInvalid;
  if (const cublasStatus_t status = choose(product, algorithm, workspace_bytes); status != kSuccess) return status;
  if (const cublasStatus_t status = check_alignment(product); status != kSuccess) return status;
  enqueue(stream, [product] {
    if (planted("faults")) throw Fault(cudaErrorIllegalAddress, "planted: cublasLtMatmul faults");
    compute(product);
  });
  return kSuccess;
}

}  // namespace

std::optional<int> device_of(cublasLtHandle_t handle) { return handles.find(handle); }

}  // namespace halfmark::kernels::software_gpu::cublaslt

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cublaslt;

#define HM_CALLED(name)                                                                \
  if (const auto failure = called(name)) return static_cast<cublasStatus_t>(*failure); \
  if (planted(name)) return CUBLAS_STATUS_INTERNAL_ERROR

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  HM_CALLED("cublasLtCreate");
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = handles.create(current_device());
  return CUBLAS_STATUS_SUCCESS;
}

// Null is INVALID_VALUE, as in the real library; a destroyed handle is NOT_INITIALIZED, as everywhere else.
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  HM_CALLED("cublasLtDestroy");
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  return handles.destroy(handle) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  HM_CALLED("cublasLtGetProperty");
  if (!value || (type != MAJOR_VERSION && type != MINOR_VERSION && type != PATCH_LEVEL))
    return CUBLAS_STATUS_INVALID_VALUE;
  *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  for (const Name& row : kNames)
    if (row.status == status) return row.name;
  return kUnknownName;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  for (const Name& row : kNames)
    if (row.status == status) return row.text;
  return kUnknownName;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  HM_CALLED("cublasLtMatmul");
  Product product;
  product.a = a, product.b = b, product.c = c, product.d = d, product.workspace = workspace;
  return matmul(handle, product, description, alpha, beta, a_layout, b_layout, c_layout, d_layout, algorithm,
                workspace_bytes, stream);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  HM_CALLED("cublasLtMatmulAlgoGetHeuristic");
  const std::optional<int> device = cublaslt::device_of(handle);
  if (!device) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted <= 0 || !results || !found) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const auto preferred = value_of<Preference>(preference);
  if (!preferred) return CUBLAS_STATUS_INVALID_VALUE;
  if (preferred->search != CUBLASLT_SEARCH_BEST_FIT) return CUBLAS_STATUS_NOT_SUPPORTED;
  Problem problem;
  if (const cublasStatus_t status = make_problem(description, a, b, c, d, architecture_of(*device), problem);
      status != CUBLAS_STATUS_SUCCESS)
    return as_heuristic(status);
  for (const Candidate& candidate : candidates(problem, *preferred)) {
    if (*found == wanted) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    assign(&result.algo, candidate.algorithm);
    result.workspaceSize = candidate.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  HM_CALLED("cublasLtMatmulAlgoCheck");
  const std::optional<int> device = cublaslt::device_of(handle);
  if (!device) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto given = value_of<Algorithm>(algorithm);
  if (!given || !result) return CUBLAS_STATUS_INVALID_VALUE;
  Problem problem;
  if (const cublasStatus_t status = make_problem(description, a, b, c, d, architecture_of(*device), problem);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  uint64_t workspace = 0;
  const cublasStatus_t status = check_algorithm(problem, *given, workspace);
  result->state = status, result->workspaceSize = workspace, result->wavesCount = 1;  // algo is never updated
  return status;
}

}  // extern "C"
