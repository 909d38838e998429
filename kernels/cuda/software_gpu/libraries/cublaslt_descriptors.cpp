// cublasLt's descriptors: create, initialise, destroy, set and get attributes. As the real library (13.1, tried without
// a GPU), these accept any value of the right size; what a value means is checked when the descriptor is used.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_objects.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

struct Field {
  int attribute;
  size_t offset, bytes;
};
#define HM_FIELD(type, attribute, member) \
  Field { attribute, offsetof(type, member), sizeof(type::member) }
#define HM_LAYOUT(name, member) HM_FIELD(Layout, CUBLASLT_MATRIX_LAYOUT_##name, member)
#define HM_DESCRIPTION(name, member) HM_FIELD(Description, CUBLASLT_MATMUL_DESC_##name, member)
#define HM_PREFERENCE(name, member) HM_FIELD(Preference, CUBLASLT_MATMUL_PREF_##name, member)
#define HM_ALGORITHM(name, member) HM_FIELD(Algorithm, CUBLASLT_ALGO_CONFIG_##name, member)

// Sizes as cublasLt.h states them at each attribute.
constexpr Field kLayoutFields[] = {
    HM_LAYOUT(TYPE, type),
    HM_LAYOUT(ORDER, order),
    HM_LAYOUT(ROWS, rows),
    HM_LAYOUT(COLS, columns),
    HM_LAYOUT(LD, ld),
    HM_LAYOUT(BATCH_COUNT, batch),
    HM_LAYOUT(STRIDED_BATCH_OFFSET, batch_stride),
    HM_LAYOUT(PLANE_OFFSET, plane_offset),
    HM_LAYOUT(BATCH_MODE, batch_mode),
};
constexpr Field kDescriptionFields[] = {
    HM_DESCRIPTION(COMPUTE_TYPE, compute),
    HM_DESCRIPTION(SCALE_TYPE, scale),
    HM_DESCRIPTION(POINTER_MODE, pointer_mode),
    HM_DESCRIPTION(TRANSA, transpose_a),
    HM_DESCRIPTION(TRANSB, transpose_b),
    HM_DESCRIPTION(TRANSC, transpose_c),
    HM_DESCRIPTION(FILL_MODE, fill),
    HM_DESCRIPTION(EPILOGUE, epilogue),
    HM_DESCRIPTION(BIAS_POINTER, bias),
    HM_DESCRIPTION(BIAS_BATCH_STRIDE, bias_stride),
    HM_DESCRIPTION(EPILOGUE_AUX_POINTER, aux),
    HM_DESCRIPTION(EPILOGUE_AUX_LD, aux_ld),
    HM_DESCRIPTION(EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
    HM_DESCRIPTION(ALPHA_VECTOR_BATCH_STRIDE, alpha_stride),
    HM_DESCRIPTION(SM_COUNT_TARGET, multiprocessors),
    HM_DESCRIPTION(A_SCALE_POINTER, scale_a),
    HM_DESCRIPTION(B_SCALE_POINTER, scale_b),
    HM_DESCRIPTION(C_SCALE_POINTER, scale_c),
    HM_DESCRIPTION(D_SCALE_POINTER, scale_d),
    HM_DESCRIPTION(AMAX_D_POINTER, amax_d),
    HM_DESCRIPTION(EPILOGUE_AUX_DATA_TYPE, aux_type),
    HM_DESCRIPTION(EPILOGUE_AUX_SCALE_POINTER, scale_aux),
    HM_DESCRIPTION(EPILOGUE_AUX_AMAX_POINTER, amax_aux),
    HM_DESCRIPTION(FAST_ACCUM, fast_accumulation),
    HM_DESCRIPTION(BIAS_DATA_TYPE, bias_type),
    HM_DESCRIPTION(A_SCALE_MODE, mode_a),
    HM_DESCRIPTION(B_SCALE_MODE, mode_b),
    HM_DESCRIPTION(C_SCALE_MODE, mode_c),
    HM_DESCRIPTION(D_SCALE_MODE, mode_d),
    HM_DESCRIPTION(EPILOGUE_AUX_SCALE_MODE, mode_aux),
    HM_DESCRIPTION(D_OUT_SCALE_POINTER, out_scale),
    HM_DESCRIPTION(D_OUT_SCALE_MODE, mode_out),
    HM_DESCRIPTION(EMULATION_DESCRIPTOR, emulation),
};
constexpr Field kPreferenceFields[] = {
    HM_PREFERENCE(SEARCH_MODE, search),
    HM_PREFERENCE(MAX_WORKSPACE_BYTES, workspace),
    HM_PREFERENCE(REDUCTION_SCHEME_MASK, reductions),
    HM_PREFERENCE(MIN_ALIGNMENT_A_BYTES, align_a),
    HM_PREFERENCE(MIN_ALIGNMENT_B_BYTES, align_b),
    HM_PREFERENCE(MIN_ALIGNMENT_C_BYTES, align_c),
    HM_PREFERENCE(MIN_ALIGNMENT_D_BYTES, align_d),
    HM_PREFERENCE(MAX_WAVES_COUNT, waves),
    HM_PREFERENCE(IMPL_MASK, implementations),
};
constexpr Field kAlgorithmFields[] = {
    HM_ALGORITHM(ID, id),
    HM_ALGORITHM(TILE_ID, tile),
    HM_ALGORITHM(SPLITK_NUM, split_k),
    HM_ALGORITHM(REDUCTION_SCHEME, reduction),
    HM_ALGORITHM(CTA_SWIZZLING, swizzle),
    HM_ALGORITHM(CUSTOM_OPTION, custom),
    HM_ALGORITHM(STAGES_ID, stages),
    HM_ALGORITHM(INNER_SHAPE_ID, inner),
    HM_ALGORITHM(CLUSTER_SHAPE_ID, cluster),
};
#undef HM_ALGORITHM
#undef HM_PREFERENCE
#undef HM_DESCRIPTION
#undef HM_LAYOUT
#undef HM_FIELD

const Field* field(std::span<const Field> fields, int attribute) {
  for (const Field& one : fields)
    if (one.attribute == attribute) return &one;
  return nullptr;
}

template <class Value, class Opaque>
cublasStatus_t set(Opaque* object, std::span<const Field> fields, int attribute, const void* from, size_t bytes) {
  const Field* place = field(fields, attribute);
  if (!place || !from || bytes != place->bytes || !value_of<Value>(object)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(reinterpret_cast<std::byte*>(object) + place->offset, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Value, class Opaque>
cublasStatus_t get(const Opaque* object, std::span<const Field> fields, int attribute, void* into, size_t bytes,
                   size_t* written) {
  const Field* place = field(fields, attribute);
  if (!place || !value_of<Value>(object)) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes == 0 ? !written : !into || bytes != place->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes) std::memcpy(into, reinterpret_cast<const std::byte*>(object) + place->offset, bytes);
  if (written) *written = place->bytes;
  return CUBLAS_STATUS_SUCCESS;
}

// Keeps every struct of its kind until the process ends: a destroyed one must stay readable.
template <class Opaque>
Opaque* allocate() {
  static std::mutex mutex;
  static std::vector<Opaque*> all;
  const std::lock_guard lock(mutex);
  all.push_back(new Opaque{});
  return all.back();
}

template <class Opaque, class Value>
cublasStatus_t create(Opaque** object, const Value& value) {
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  *object = allocate<Opaque>();
  assign(*object, value);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque, class Value>
cublasStatus_t initialise(Opaque* object, size_t bytes, const Value& value) {
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes < sizeof(Opaque)) return CUBLAS_STATUS_ALLOC_FAILED;
  assign(object, value);
  return CUBLAS_STATUS_SUCCESS;
}

// Null is accepted, as by the real library.
template <class Value, class Opaque>
cublasStatus_t destroy(Opaque* object) {
  if (!object) return CUBLAS_STATUS_SUCCESS;
  std::optional<Value> value = value_of<Value>(object);
  if (!value) return CUBLAS_STATUS_INVALID_VALUE;
  value->kind = Kind::destroyed;
  assign(object, *value);
  return CUBLAS_STATUS_SUCCESS;
}

Layout layout_of(cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  Layout layout;
  layout.type = static_cast<uint32_t>(type), layout.rows = rows, layout.columns = columns, layout.ld = ld;
  return layout;
}

Description description_of(cublasComputeType_t compute, cudaDataType_t scale) {
  Description description;
  description.compute = compute, description.scale = scale;
  return description;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cublaslt;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return static_cast<cublasStatus_t>(*failure)

extern "C" {

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  HM_CALLED("cublasLtMatrixLayoutCreate");
  return create(layout, layout_of(type, rows, columns, ld));
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  HM_CALLED("cublasLtMatrixLayoutInit_internal");
  return initialise(layout, size, layout_of(type, rows, columns, ld));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  HM_CALLED("cublasLtMatrixLayoutDestroy");
  return destroy<Layout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  HM_CALLED("cublasLtMatrixLayoutSetAttribute");
  return set<Layout>(layout, kLayoutFields, attribute, from, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* into, size_t bytes,
                                                size_t* written) {
  HM_CALLED("cublasLtMatrixLayoutGetAttribute");
  return get<Layout>(layout, kLayoutFields, attribute, into, bytes, written);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  HM_CALLED("cublasLtMatmulDescCreate");
  return create(description, description_of(compute, scale));
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  HM_CALLED("cublasLtMatmulDescInit_internal");
  return initialise(description, size, description_of(compute, scale));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  HM_CALLED("cublasLtMatmulDescDestroy");
  return destroy<Description>(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
  HM_CALLED("cublasLtMatmulDescSetAttribute");
  return set<Description>(description, kDescriptionFields, attribute, from, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, void* into, size_t bytes,
                                              size_t* written) {
  HM_CALLED("cublasLtMatmulDescGetAttribute");
  return get<Description>(description, kDescriptionFields, attribute, into, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  HM_CALLED("cublasLtMatmulPreferenceCreate");
  return create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  HM_CALLED("cublasLtMatmulPreferenceInit_internal");
  return initialise(preference, size, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  HM_CALLED("cublasLtMatmulPreferenceDestroy");
  return destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  HM_CALLED("cublasLtMatmulPreferenceSetAttribute");
  return set<Preference>(preference, kPreferenceFields, attribute, from, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void* into,
                                                    size_t bytes, size_t* written) {
  HM_CALLED("cublasLtMatmulPreferenceGetAttribute");
  return get<Preference>(preference, kPreferenceFields, attribute, into, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  HM_CALLED("cublasLtMatmulAlgoConfigSetAttribute");
  if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM && planted("ignores-split-k")) return CUBLAS_STATUS_SUCCESS;
  // cublasLt.h: "readonly, set by cublasLtMatmulAlgoInit()".
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;
  return set<Algorithm>(algorithm, kAlgorithmFields, attribute, from, bytes);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* into,
                                                    size_t bytes, size_t* written) {
  HM_CALLED("cublasLtMatmulAlgoConfigGetAttribute");
  return get<Algorithm>(algorithm, kAlgorithmFields, attribute, into, bytes, written);
}

}  // extern "C"
