#include "kernels/cuda/software_gpu/libraries/cublaslt_problem.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

constexpr cublasStatus_t kFine = CUBLAS_STATUS_SUCCESS, kInvalid = CUBLAS_STATUS_INVALID_VALUE,
                         kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED, kArchitecture = CUBLAS_STATUS_ARCH_MISMATCH;

cudaDataType_t type(const Layout& layout) { return static_cast<cudaDataType_t>(layout.type); }

// cublasLt.h at CUBLASLT_MATRIX_LAYOUT_LD: "Currently only non-negative values are supported, must be large enough so
// that matrix memory locations are not overlapping (e.g. greater or equal to CUBLASLT_MATRIX_LAYOUT_ROWS in case of
// CUBLASLT_ORDER_COL)". At ROWS and COLS: "Usually only values that can be expressed as int32_t are supported".
cublasStatus_t check_layout(const Layout& layout) {
  if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW) {
    const bool known = layout.order >= 0 && layout.order <= CUBLASLT_ORDER_COL32_2R_4R4;
    return known ? kUnsupported : kInvalid;  // the other orders are for integers only
  }
  constexpr uint64_t kMost = 0x7fffffff;
  if (layout.rows == 0 || layout.columns == 0) return kInvalid;
  if (layout.rows > kMost || layout.columns > kMost) return kUnsupported;
  const uint64_t width = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.columns;
  if (layout.ld < 0 || static_cast<uint64_t>(layout.ld) < width) return kInvalid;
  if (layout.batch < 1) return kInvalid;
  if (layout.batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY) return kUnsupported;
  if (layout.batch_mode != CUBLASLT_BATCH_MODE_STRIDED) return kInvalid;
  return layout.plane_offset == 0 ? kFine : kUnsupported;
}

// The conjugate transpose of a real matrix is its transpose.
bool is_operation(int32_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

// Matrices of a batch of results must not overlap; operands may repeat (stride 0).
bool overlaps(const Layout& layout) {
  const int64_t lines = static_cast<int64_t>(layout.order == CUBLASLT_ORDER_COL ? layout.columns : layout.rows);
  const int64_t width = static_cast<int64_t>(layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.columns);
  return layout.batch > 1 && layout.batch_stride < layout.ld * (lines - 1) + width;
}

bool known_epilogue(uint32_t epilogue) {
  for (const uint32_t known :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
        CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB})
    if (epilogue == known) return true;
  return false;
}

// cublasLt.h at CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: a bit mask's is "divisible by 128 and no less than the number of
// rows in the output matrix", that of GELU's input divisible by 8; at _AUX_BATCH_STRIDE likewise. A bias epilogue reads
// CUBLASLT_MATMUL_DESC_BIAS_POINTER, an AUX epilogue _EPILOGUE_AUX_POINTER: null pointers are refused.
cublasStatus_t check_epilogue(const Problem& problem) {
  const Description& d = problem.description;
  if (!known_epilogue(d.epilogue)) return kInvalid;
  if (problem.has_epilogue(kBias | kBiasGradient | kBiasGradientA | kBiasGradientB) && !d.bias) return kInvalid;
  if (d.bias_type != -1 && d.bias_type != problem.types->bias) return kInvalid;
  if (problem.has_epilogue(kAux)) {
    const int64_t step = problem.has_epilogue(kRelu | kReluGradient) ? 128 : 8;
    if (!d.aux || d.aux_ld < problem.m || d.aux_ld % step != 0) return kInvalid;
    if (problem.d.batch > 1 && d.aux_stride % step != 0) return kInvalid;
    if (d.aux_type != -1 && d.aux_type != problem.types->d) return kInvalid;
    if (problem.types->narrow()) return kUnsupported;  // its auxiliary types and scales are not written here
  }
  return kFine;
}

// "Tensor Core Usage" of the cuBLAS documentation, which FP8 and FP4 kernels require: with transposed A and plain B,
// k of A and of B, m of C and D and all leading dimensions are multiples of 16 bytes. On compute capability 8.9, 9.0 and
// 12.x, A must be transposed and B not ("The TN format"); FP4 needs this everywhere.
cublasStatus_t check_narrow(const Problem& p) {
  const Description& d = p.description;
  const bool only_tn = p.architecture < 100 || p.architecture >= 120 || is_fp4(type(p.a));
  if (only_tn && (!p.transposes(p.a) || p.transposes(p.b))) return kUnsupported;
  const int64_t inner_a = p.transposes(p.a) ? p.k : p.m, inner_b = p.transposes(p.b) ? p.n : p.k;
  const auto whole = [](const Layout& layout, int64_t elements) { return bytes_of(layout, elements * 2) % 32 == 0; };
  if (!whole(p.a, inner_a) || !whole(p.b, inner_b) || !whole(p.c, p.m) || !whole(p.d, p.m)) return kUnsupported;
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d})
    if (!strides_aligned(*layout, 16)) return kUnsupported;
  if (!has_scale_mode(type(p.a), d.mode_a, p.architecture) || !has_scale_mode(type(p.b), d.mode_b, p.architecture))
    return kUnsupported;
  if (!may_pair(d.mode_a, d.mode_b)) return kUnsupported;
  // "128-element 1D and 128x128 2D Block Scaling", "Scaling factors layouts": "M and N must be multiples of 4."
  if (scale_block(d.mode_a) == 128 && (p.m % 4 != 0 || p.n % 4 != 0)) return kUnsupported;
  // Only a scalar may be absent; it is 1 then.
  const bool scalar = d.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (!scalar && (!d.scale_a || !d.scale_b)) return kInvalid;
  // A result of FP8 or FP4 with block scales needs scales of its own, which the stand-in does not compute.
  const bool narrow_result = is_fp8(type(p.d)) || is_fp4(type(p.d));
  if (narrow_result && !scalar) return kUnsupported;
  if (d.mode_c != 0 || d.mode_d != 0 || d.mode_out != 0 || d.mode_aux != 0 || d.out_scale) return kUnsupported;
  if (!narrow_result && (d.scale_d || d.amax_d)) return kInvalid;
  return d.scale_c || d.scale_aux || d.amax_aux ? kInvalid : kFine;  // C and the auxiliary matrix are not narrow here
}

// cublasLt.h at every scale pointer: "If set for an unsupported matrix data, scale, and compute type combination, calling
// cublasLtMatmul() will return CUBLAS_INVALID_VALUE."
cublasStatus_t check_wide(const Description& d) {
  if (d.scale_a || d.scale_b || d.scale_c || d.scale_d || d.amax_d || d.scale_aux || d.amax_aux || d.out_scale)
    return kInvalid;
  return d.mode_a || d.mode_b || d.mode_c || d.mode_d || d.mode_aux || d.mode_out ? kInvalid : kFine;
}

cublasStatus_t check_description(const Description& d) {
  if (!is_operation(d.transpose_a) || !is_operation(d.transpose_b)) return kInvalid;
  if (d.transpose_c != CUBLAS_OP_N) return kUnsupported;  // "Currently only CUBLAS_OP_N is supported."
  if (d.fill != CUBLAS_FILL_MODE_FULL || d.emulation) return kUnsupported;
  if (d.pointer_mode < CUBLASLT_POINTER_MODE_HOST ||
      d.pointer_mode > CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST)
    return kInvalid;
  // Which pointer modes an algorithm has is its own matter (CUBLASLT_ALGO_CAP_POINTER_MODE_MASK); ours have these two.
  return d.pointer_mode > CUBLASLT_POINTER_MODE_DEVICE ? kUnsupported : kFine;
}

}  // namespace

bool Problem::transposes(const Layout& layout) const {
  return (&layout == &a ? description.transpose_a : description.transpose_b) != CUBLAS_OP_N;
}

uint64_t bytes_of(const Layout& layout, int64_t elements) {
  const std::optional<DType> dtype = dtype_of(type(layout));
  return dtype ? bytes_for(*dtype, static_cast<size_t>(std::max<int64_t>(elements, 0))) : 0;
}

bool strides_aligned(const Layout& layout, uint64_t bytes) {
  const auto whole = [&](int64_t elements) {
    return bytes_of(layout, elements < 0 ? -elements : elements) % bytes == 0 &&
           (!is_fp4(type(layout)) || elements % 2 == 0);
  };
  return whole(layout.ld) && (layout.batch == 1 || whole(layout.batch_stride));
}

cublasStatus_t make_problem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, int architecture, Problem& problem) {
  const auto described = value_of<Description>(description);
  const auto in_a = value_of<Layout>(a), in_b = value_of<Layout>(b), in_c = value_of<Layout>(c),
             out = value_of<Layout>(d);
  if (!described || !in_a || !in_b || !in_c || !out) return kInvalid;
  problem = {*described, *in_a, *in_b, *in_c, *out, nullptr, 0, 0, 0, architecture};
  if (const cublasStatus_t status = check_description(*described); status != kFine) return status;
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d})
    if (const cublasStatus_t status = check_layout(*layout); status != kFine) return status;

  const bool ta = problem.transposes(problem.a), tb = problem.transposes(problem.b);
  const uint64_t m = ta ? in_a->columns : in_a->rows, k = ta ? in_a->rows : in_a->columns,
                 n = tb ? in_b->rows : in_b->columns;
  if ((tb ? in_b->columns : in_b->rows) != k) return kInvalid;
  if (out->rows != m || out->columns != n || in_c->rows != m || in_c->columns != n) return kInvalid;
  if (in_a->batch != out->batch || in_b->batch != out->batch || in_c->batch != out->batch) return kInvalid;
  if (overlaps(*out)) return kInvalid;
  problem.m = static_cast<int64_t>(m), problem.n = static_cast<int64_t>(n), problem.k = static_cast<int64_t>(k);

  problem.types =
      find_types(static_cast<cublasComputeType_t>(described->compute), static_cast<cudaDataType_t>(described->scale),
                 type(*in_a), type(*in_b), type(*in_c), type(*out));
  if (!problem.types) return kUnsupported;
  if (architecture < problem.types->architecture) return kArchitecture;
  if (const cublasStatus_t status = problem.types->narrow() ? check_narrow(problem) : check_wide(*described);
      status != kFine)
    return status;
  return check_epilogue(problem);
}

}  // namespace halfmark::kernels::software_gpu::cublaslt
