// Rows `cublaslt` of products with bias and activation: the library's epilogues. Sums are promised as those of a product
// (blaslt_arithmetic.h). In which order and how widely an epilogue computes is not documented beyond the scale type. On
// an H200 the product is rounded to the dtype of the result first in some cases (README.md).
#include <cstdint>
#include <string>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

// The bits of cublasLtEpilogue_t.
constexpr uint32_t kWithBias = CUBLASLT_EPILOGUE_BIAS, kKeeps = CUBLASLT_EPILOGUE_RELU_AUX & ~CUBLASLT_EPILOGUE_RELU,
                   kSumsResult = CUBLASLT_EPILOGUE_DRELU_BGRAD & ~CUBLASLT_EPILOGUE_DRELU;

cublasLtEpilogue_t epilogue_of(const FusedMatmul& op) {
  uint32_t epilogue = op.bias.empty() ? 0 : kWithBias;
  if (op.activation == FusedActivation::relu) epilogue |= CUBLASLT_EPILOGUE_RELU;
  if (op.activation == FusedActivation::gelu_tanh) epilogue |= CUBLASLT_EPILOGUE_GELU;
  if (!op.kept.empty()) epilogue |= kKeeps;
  return epilogue ? static_cast<cublasLtEpilogue_t>(epilogue) : CUBLASLT_EPILOGUE_DEFAULT;
}

// The library's A is our b.
cublasLtEpilogue_t epilogue_of(const FusedMatmulBackward& op) {
  if (op.sums == BiasSums::a) return CUBLASLT_EPILOGUE_BGRADB;
  if (op.sums == BiasSums::b) return CUBLASLT_EPILOGUE_BGRADA;
  if (op.activation == FusedActivation::none) return CUBLASLT_EPILOGUE_DEFAULT;
  const uint32_t gradient = op.activation == FusedActivation::relu ? CUBLASLT_EPILOGUE_DRELU : CUBLASLT_EPILOGUE_DGELU;
  return static_cast<cublasLtEpilogue_t>(op.sums == BiasSums::out ? gradient | kSumsResult : gradient);
}

const Tensor& vector_of(const FusedMatmul& op) { return op.bias; }
const Tensor& vector_of(const FusedMatmulBackward& op) { return op.dbias; }

bool is_fp8_type(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

// cublasLt.h at CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: that of the result. Documentation, "To use FP8 kernels": bf16 beside
// a result in f32.
DType bias_type_for(DType operand, DType out) { return is_fp8_type(operand) && out == DType::f32 ? DType::bf16 : out; }

template <class Op>
Refusal describe_vectors(const Op& op, BlasltProblem& problem) {
  const DType out = op.out.dtype();
  problem.epilogue = epilogue_of(op);
  if (const Tensor& vector = vector_of(op); !vector.empty()) {
    problem.bias_type = bias_type_for(op.a.dtype(), out);
    if (vector.dtype() != problem.bias_type)
      return "has a bias of " + std::string(name_of(problem.bias_type)) + " here, not of " +
             std::string(name_of(vector.dtype()));
    problem.bias_alignment = alignment_of(vector);
    problem.bias_bytes = bytes_for(vector.dtype(), static_cast<size_t>(vector.elements()));
  }
  if (op.kept.empty()) return {};
  const int64_t columns = op.out.shape()[1];
  problem.aux_alignment = alignment_of(op.kept);
  problem.aux_bytes = bytes_for(op.kept.dtype(), static_cast<size_t>(op.kept.elements()));
  if (op.activation == FusedActivation::relu) {
    problem.aux_ld = relu_mask_bytes(columns) * 8;
    return {};
  }
  if (op.kept.dtype() != out)
    return "keeps for GELU a matrix of the dtype of the result, not of " + std::string(name_of(op.kept.dtype()));
  if (columns % 8 != 0) return "keeps for GELU only rows of multiples of 8 elements";
  problem.aux_ld = columns;
  return {};
}

template <class Op>
Refusal fused_problem(const CudaDevice& device, const Op& op, BlasltProblem& problem) {
  problem.a = blaslt_matrix(op.a, op.transpose_a), problem.b = blaslt_matrix(op.b, op.transpose_b);
  problem.out = blaslt_matrix(op.out, false);
  problem.fast_accumulate = op.math.fast_accumulate;
  const int64_t depth = op.transpose_a ? problem.a.rows : problem.a.columns;
  if (Refusal r = blaslt_arithmetic(device.compute_capability(), op.a.dtype(), op.b.dtype(), op.out.dtype(), op.math,
                                    depth, problem.arithmetic))
    return r;
  // The scale type, which the epilogue computes in, would be fp16.
  if (op.math.accumulate == kFp16) return "adds a bias and applies an activation only to sums in fp32 and fp64";
  if (op.activation == FusedActivation::gelu_tanh && op.out.dtype() == DType::f64)
    return "computes GELU of fp64 with a relative error near 1e-9";  // seen on an H200, cublasLt 13.1
  if (Refusal r = not_for_narrow(device.compute_capability(), problem)) return r;
  return describe_vectors(op, problem);
}

Refusal not_for_fp8(const FusedMatmul& op) {
  if (op.kept.empty() || !is_fp8_type(op.a.dtype())) return {};
  return "keeps nothing of products of fp8 for backward";
}
Refusal not_for_fp8(const FusedMatmulBackward& op) {
  if (!is_fp8_type(op.a.dtype())) return {};
  return "has no gradients of bias and activation with products of fp8";
}

template <class Op>
const BlasltPlan& fused_plan(const CudaDevice& device, const Op& op, const BlasltProblem& problem) {
  Signature key;
  for (const auto* one : {&problem.a, &problem.b, &problem.out}) add_to(key, *one);
  key.add(problem.batch);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(op.math);
  key.add(int64_t{problem.epilogue}), key.add(problem.bias_alignment), key.add(problem.aux_alignment);
  return blaslt_plan(device, key, problem);
}

template <class Op>
Refusal refuses_fused(const Device& device, const Op& op) {
  if (Refusal r = not_for_blaslt({&op.a, &op.b, &op.out})) return r;
  if (Refusal r = not_readable({&op.a, &op.b})) return r;
  if (Refusal r = not_plain({&op.a, &op.b, &op.out, &op.kept, &vector_of(op)})) return r;
  if (op.a.elements() == 0 || op.b.elements() == 0 || op.out.elements() == 0) return "does not take an empty matrix";
  if (Refusal r = not_for_fp8(op)) return r;
  BlasltProblem problem;
  if (Refusal r = fused_problem(of(device), op, problem)) return r;
  const BlasltPlan& plan = fused_plan(of(device), op, problem);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

template <class Op>
std::string fused_choice(const Device& device, const Op& op) {
  BlasltProblem problem;
  (void)fused_problem(of(device), op, problem);
  return fused_plan(of(device), op, problem).choice();
}

// The library need not write the bits of the mask beyond the last column.
void materialize_results(CudaDevice& cuda, const FusedMatmul& op) {
  op.out.materialize(Layout::plain);
  if (op.kept.empty()) return;
  op.kept.materialize(Layout::plain);
  if (op.activation == FusedActivation::relu && op.out.shape()[1] % 128 != 0)
    HM_CUDA(cudaMemsetAsync(op.kept.data(), 0, op.kept.bytes(), cuda.stream()));
}
void materialize_results(CudaDevice&, const FusedMatmulBackward& op) {
  op.out.materialize(Layout::plain);
  if (!op.dbias.empty()) op.dbias.materialize(Layout::plain);
}

void* memory_of(const Tensor& tensor) { return tensor.empty() ? nullptr : const_cast<void*>(tensor.data()); }

template <class Op>
void run_fused(Device& device, const Op& op) {
  CudaDevice& cuda = on(device);
  materialize_results(cuda, op);
  BlasltProblem problem;
  if (const Refusal r = fused_problem(cuda, op, problem)) throw Error("cublaslt " + *r);
  const BlasltPlan& plan = fused_plan(cuda, op, problem);
  HM_CHECK(plan.refusal().empty(), "cublaslt " + plan.refusal());
  Tensor scratch;
  if (plan.workspace_bytes()) scratch = workspace(device, plan.workspace_bytes());
  const BlasltPointers pointers{.a = op.a.data(),
                                .b = op.b.data(),
                                .out = op.out.data(),
                                .bias = memory_of(vector_of(op)),
                                .aux = memory_of(op.kept)};
  plan.run(cuda, pointers, scratch.empty() ? nullptr : scratch.data());
}

template <class Op>
void add_fused_row(KernelTable& table) {
  Kernel<Op> row{"cublaslt", Speed::real, refuses_fused<Op>, run_fused<Op>};
  row.rounds_between = true;
  row.choice = fused_choice<Op>;
  table.of<Op>().push_back(row);
}

}  // namespace

void add_blaslt_fused_rows(KernelTable& table) {
  add_fused_row<FusedMatmul>(table);
  add_fused_row<FusedMatmulBackward>(table);
}

}  // namespace halfmark::kernels::cuda
