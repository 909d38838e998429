// What cublasLt's opaque structs hold, and how a struct is recognised. cublasLt.h fixes their sizes; programs may keep
// them in their own memory (cublasLtMatmulDescInit), so everything fits in place.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace halfmark::kernels::software_gpu::cublaslt {

// The first word of every struct. A destroyed struct stays allocated and has another word, so that its use is noticed.
enum class Kind : uint64_t {
  layout = 0x8d3c51f0a1b20001,
  description = 0x8d3c51f0a1b20002,
  preference = 0x8d3c51f0a1b20003,
  algorithm = 0x8d3c51f0a1b20004,
  destroyed = 0x8d3c51f0a1b2dead,
};

// Defaults as the comments of cublasLt.h state them.
struct Layout {
  Kind kind = Kind::layout;
  uint32_t type = 0;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;  // in elements, as the stride between matrices of a batch
  int32_t batch = 1;
  uint32_t batch_mode = CUBLASLT_BATCH_MODE_STRIDED;
  int64_t batch_stride = 0, plane_offset = 0;
};

struct Description {
  Kind kind = Kind::description;
  int32_t compute = 0, scale = 0, pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, transpose_c = CUBLAS_OP_N;
  int32_t fill = CUBLAS_FILL_MODE_FULL;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_stride = 0;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_stride = 0, alpha_stride = 0;
  int32_t multiprocessors = 0, aux_type = -1;
  const void *scale_a = nullptr, *scale_b = nullptr, *scale_c = nullptr, *scale_d = nullptr;
  void* amax_d = nullptr;
  const void* scale_aux = nullptr;
  void* amax_aux = nullptr;
  int32_t bias_type = -1;
  int32_t mode_a = 0, mode_b = 0, mode_c = 0, mode_d = 0, mode_aux = 0, mode_out = 0;
  void *out_scale = nullptr, *emulation = nullptr;
  int8_t fast_accumulation = 0;
};

struct Preference {
  Kind kind = Kind::preference;
  uint32_t search = CUBLASLT_SEARCH_BEST_FIT, reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint64_t workspace = 0;
  uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  float waves = 0;
  uint64_t implementations = ~uint64_t{0};
};

struct Algorithm {
  Kind kind = Kind::algorithm;
  int32_t id = 0;
  uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  int32_t split_k = 1;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE, swizzle = 0, custom = 0, stages = 0;
  uint16_t inner = 0, cluster = 0;
  // What it was initialised for; an algorithm runs nothing else.
  uint8_t compute = 0, scale = 0, a = 0, b = 0, c = 0, d = 0;
};

// Null, a destroyed struct and a struct of another kind give nothing.
template <class Value, class Opaque>
std::optional<Value> value_of(const Opaque* object) {
  static_assert(sizeof(Value) <= sizeof(Opaque));
  if (!object) return std::nullopt;
  Value value;
  const Kind expected = value.kind;
  std::memcpy(static_cast<void*>(&value), object, sizeof value);
  if (value.kind != expected) return std::nullopt;
  return value;
}

template <class Value, class Opaque>
void assign(Opaque* object, const Value& value) {
  static_assert(sizeof(Value) <= sizeof(Opaque));
  std::memcpy(object, &value, sizeof value);
}

// The device of a live handle.
std::optional<int> device_of(cublasLtHandle_t handle);

}  // namespace halfmark::kernels::software_gpu::cublaslt
