// Which data types cublasLtMatmul() takes together, and from which architecture on.
//
// Source: cuBLAS documentation 13.0, section "cublasLtMatmul()": the table of regular column- and row-major matrices, the
// table of FP8 kernels, the table of FP4 kernels, the lists of requirements before them; section "Narrow Precision Data
// Types Usage": the table of scaling modes; compared with the documentation of cuBLAS 13, and with cublasLt.h of 13.1.
// Not here, though documented, because nothing in halfmark uses them: integers, complex numbers, emulated FP32 and FP64.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu::cublaslt {

enum class Compute : uint8_t { half, single, fast, wide };  // fast: FP32 whose operands may be converted down
std::optional<Compute> compute_of(cublasComputeType_t type);
bool is_pedantic(cublasComputeType_t type);
std::optional<DType> dtype_of(cudaDataType_t type);

struct Types {
  Compute compute;
  cudaDataType_t scale, a, b, c, d, bias;
  int architecture;     // the first
  bool narrow() const;  // FP8 or FP4: other rules for transposes, alignment and scales hold
};
std::span<const Types> types();
// Null: the documentation does not list this combination. Row-independent rules: narrow types are computed with
// CUBLAS_COMPUTE_32F only, not its pedantic form.
const Types* find_types(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                        cudaDataType_t c, cudaDataType_t d);

bool is_fp8(cudaDataType_t type);
bool is_fp4(cudaDataType_t type);

// Whether A (or B) of this type may have this scaling mode on this architecture.
bool has_scale_mode(cudaDataType_t type, int mode, int architecture);
bool may_pair(int mode_a, int mode_b);
int scale_block(int mode);  // consecutive k that share a scale; 0: a scalar or a vector over rows

}  // namespace halfmark::kernels::software_gpu::cublaslt
