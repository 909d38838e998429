// cublasLt's functions about single algorithms: which there are, what they can do.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#include "kernels/cuda/software_gpu/libraries/cublaslt_algorithms.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

template <class T>
cublasStatus_t give(T value, void* into, size_t bytes, size_t* written) {
  if (bytes == 0 ? !written : !into || bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes) std::memcpy(into, &value, sizeof value);
  if (written) *written = sizeof value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t capability(const Algorithm& algorithm, cublasLtMatmulAlgoCapAttributes_t attribute, void* into,
                          size_t bytes, size_t* written) {
  const std::optional<Numerics> numerics = numerics_of(algorithm, architecture_of(current_device()));
  if (!numerics) return CUBLAS_STATUS_INVALID_VALUE;
  const auto narrow = static_cast<cudaDataType_t>(algorithm.a);
  const bool splits = !is_fp8(narrow) && !is_fp4(narrow);
  const auto alignment = [&](uint8_t type) { return alignment_of(algorithm, static_cast<cudaDataType_t>(type)); };
  if (attribute == CUBLASLT_ALGO_CAP_SPLITK_SUPPORT) return give<int32_t>(splits, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK)
    return give<uint32_t>(splits ? CUBLASLT_REDUCTION_SCHEME_MASK : 0, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT) return give<uint32_t>(1, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT) return give<int32_t>(1, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT) return give<int32_t>(1, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_UPLO_SUPPORT || attribute == CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX ||
      attribute == CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER || attribute == CUBLASLT_ALGO_CAP_LD_NEGATIVE ||
      attribute == CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT ||
      attribute == CUBLASLT_ALGO_CAP_FLOATING_POINT_EMULATION_SUPPORT)
    return give<int32_t>(0, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_POINTER_MODE_MASK)
    return give<uint32_t>(CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_EPILOGUE_MASK) return give<uint32_t>(0x3ff, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS) return give<uint64_t>(numerics->flags, into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES) return give(alignment(algorithm.a), into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES) return give(alignment(algorithm.b), into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES) return give(alignment(algorithm.c), into, bytes, written);
  if (attribute == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES) return give(alignment(algorithm.d), into, bytes, written);
  return CUBLAS_STATUS_INVALID_VALUE;  // tiles and stages are undefined for these algorithms
}

// Whether any row of the tables has these types on this architecture.
bool any_types(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
               cudaDataType_t d, int architecture) {
  const Types* found = find_types(compute, scale, a, b, c, d);
  return found && architecture >= found->architecture;
}

Algorithm algorithm_for(int id, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                        cudaDataType_t c, cudaDataType_t d) {
  Problem problem;
  problem.description.compute = compute, problem.description.scale = scale;
  problem.a.type = a, problem.b.type = b, problem.c.type = c, problem.d.type = d;
  return initialised(problem, id);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cublaslt;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return static_cast<cublasStatus_t>(*failure)

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                        int wanted, int ids[], int* found) {
  HM_CALLED("cublasLtMatmulAlgoGetIds");
  const std::optional<int> device = cublaslt::device_of(handle);
  if (!device) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted <= 0 || !ids || !found) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  if (!any_types(compute, scale, a, b, c, d, architecture_of(*device))) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const int id : algorithm_ids())
    if (*found < wanted && numerics_of(algorithm_for(id, compute, scale, a, b, c, d), architecture_of(*device)))
      ids[(*found)++] = id;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t* algorithm) {
  HM_CALLED("cublasLtMatmulAlgoInit");
  const std::optional<int> device = cublaslt::device_of(handle);
  if (!device) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto ids = algorithm_ids();
  if (!algorithm || std::find(ids.begin(), ids.end(), id) == ids.end()) return CUBLAS_STATUS_INVALID_VALUE;
  const Algorithm wanted = algorithm_for(id, compute, scale, a, b, c, d);
  if (!any_types(compute, scale, a, b, c, d, architecture_of(*device)) ||
      !numerics_of(wanted, architecture_of(*device)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  assign(algorithm, wanted);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute, void* into, size_t bytes,
                                                 size_t* written) {
  HM_CALLED("cublasLtMatmulAlgoCapGetAttribute");
  const auto given = value_of<Algorithm>(algorithm);
  if (!given) return CUBLAS_STATUS_INVALID_VALUE;
  return capability(*given, attribute, into, bytes, written);
}

}  // extern "C"
