// Matrix products by cublasLt: FP32, TF32, FP16 and BF16 with wide sums, FP16 with FP16 sums, FP64.
//
// Whether FP32 is FP32: CUBLAS_COMPUTE_32F guarantees it, but environment variables can make the library emulate it or
// switch TF32 off. If one is set, FP32 is requested in its pedantic form; TF32 is refused if it would silently be FP32.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // NVIDIA's recommendation for Hopper; the most a heuristic may request

// cublasLt's objects by value; destroyed with the plan.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  ~Owned() {
    if (handle) destroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Arithmetic {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
};

struct Plan {
  MatmulDesc desc;
  MatrixLayout a, b, out;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  Arithmetic arithmetic;
  std::string refusal;  // empty if there is an algorithm
};

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}
bool tf32_switched_off() {
  const char* value = std::getenv("NVIDIA_TF32_OVERRIDE");
  return value && std::string_view(value) == "0";
}
// Any variable that may change what plain FP32 and FP64 mean to the library.
bool environment_meddles() {
  return (set_in_environment("NVIDIA_TF32_OVERRIDE") && !tf32_switched_off()) ||
         set_in_environment("CUBLAS_EMULATE_SINGLE_PRECISION") || set_in_environment("CUBLAS_EMULATE_DOUBLE_PRECISION");
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::f64) return CUDA_R_64F;
  if (dtype == DType::f16) return CUDA_R_16F;
  if (dtype == DType::bf16) return CUDA_R_16BF;
  if (dtype == DType::f32) return CUDA_R_32F;
  throw Error("no cuBLASLt type for " + std::string(name_of(dtype)));
}

// The request to the library, or why it cannot do this arithmetic.
Refusal arithmetic_of(const CudaDevice& device, const Matmul& op, Arithmetic& result) {
  const DType in = op.a.dtype(), out = op.out.dtype();
  const Math& math = op.math;
  if (op.b.dtype() != in) return "takes a and b of one dtype";
  if (math.split_k != 1) return "chooses split-K itself: split_k must be 1";
  if (math.fast_accumulate) return "supports fast accumulation only for FP8";
  if ((in == DType::bf16 || math.multiply == kTf32) && device.compute_capability() < 80)
    return "needs compute capability 8.0 for bf16 and tf32, this GPU has " +
           std::to_string(device.compute_capability() / 10) + "." + std::to_string(device.compute_capability() % 10);

  if (in == DType::f64) {
    if (out != DType::f64 || !holds(math.multiply, in) || math.accumulate != kFp64) return "computes f64 only in fp64";
    result = {environment_meddles() ? CUBLAS_COMPUTE_64F_PEDANTIC : CUBLAS_COMPUTE_64F, CUDA_R_64F,
              CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
    return {};
  }
  if (math.accumulate == kFp16) {
    if (in != DType::f16 || out != DType::f16 || !holds(math.multiply, in)) return "adds in fp16 only for f16,f16->f16";
    // The compute type is narrow here, so partial sums are not allowed: they would be rounded once more.
    result = {CUBLAS_COMPUTE_16F, CUDA_R_16F, CUBLASLT_REDUCTION_SCHEME_NONE};
    return {};
  }
  if (math.accumulate != kFp32) return "adds in fp32, fp16 or fp64, not " + std::string(math.accumulate.name);
  if (out != DType::f32 && out != in)
    return "writes results of " + std::string(name_of(in)) + " operands only in that dtype or in f32";
  result = {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
  if (holds(math.multiply, in)) {
    if (in == DType::f32 && environment_meddles()) result.compute = CUBLAS_COMPUTE_32F_PEDANTIC;
    return {};
  }
  if (in == DType::f32 && math.multiply == kTf32) {
    if (tf32_switched_off()) return "TF32 is switched off by NVIDIA_TF32_OVERRIDE=0";
    result.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    return {};
  }
  return "does not round " + std::string(name_of(in)) + " operands to " + std::string(math.multiply.name);
}

// cublasLt stores matrices by column, so a row-major matrix is its own transpose: out' = op(b)' op(a)', with the
// operands swapped and each described in its stored order.
void describe(MatrixLayout& layout, const Tensor& tensor) {
  const auto rows = static_cast<uint64_t>(tensor.shape()[0]), columns = static_cast<uint64_t>(tensor.shape()[1]);
  HM_CUBLAS(cublasLtMatrixLayoutCreate(&layout.handle, type_of(tensor.dtype()), columns, rows,
                                       static_cast<int64_t>(columns)));
}

std::unique_ptr<Plan> make_plan(const CudaDevice& device, const Matmul& op) {
  auto plan = std::make_unique<Plan>();
  if (Refusal r = arithmetic_of(device, op, plan->arithmetic)) {
    plan->refusal = *r;
    return plan;
  }
  HM_CUBLAS(cublasLtMatmulDescCreate(&plan->desc.handle, plan->arithmetic.compute, plan->arithmetic.scale));
  const cublasOperation_t first = op.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = op.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  HM_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc.handle, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  HM_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc.handle, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  describe(plan->a, op.b), describe(plan->b, op.a), describe(plan->out, op.out);

  Preference preference;
  HM_CUBLAS(cublasLtMatmulPreferenceCreate(&preference.handle));
  const uint64_t bytes = kWorkspace;
  HM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                 sizeof bytes));
  HM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &plan->arithmetic.reductions, sizeof plan->arithmetic.reductions));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(device.blaslt(), plan->desc.handle, plan->a.handle, plan->b.handle,
                                     plan->out.handle, plan->out.handle, preference.handle, 1, &result, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE &&
      status != CUBLAS_STATUS_ARCH_MISMATCH)
    check(status, "cublasLtMatmulAlgoGetHeuristic");  // the call failed: no answer about this product
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
    plan->refusal = std::string("has no algorithm for this (") +
                    cublasLtGetStatusString(status != CUBLAS_STATUS_SUCCESS ? status : result.state) + ")";
    return plan;
  }
  plan->algorithm = result.algo;
  plan->workspace = result.workspaceSize;
  return plan;
}

using Plans = std::unordered_map<Signature, std::unique_ptr<Plan>, SignatureHash>;

const Plan& plan_for(const CudaDevice& device, const Matmul& op) {
  if (!device.blaslt_plans) device.blaslt_plans = std::make_shared<Plans>();
  auto& plans = *static_cast<Plans*>(device.blaslt_plans.get());
  // The layout of out is not part of the key: it is plain, or not yet chosen and about to be plain.
  Signature key;
  for (const Tensor* tensor : {&op.a, &op.b, static_cast<const Tensor*>(&op.out)}) {
    key.add(static_cast<int64_t>(tensor->dtype()));
    key.add(tensor->shape()[0]), key.add(tensor->shape()[1]);
  }
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(op.math), visitor.attribute(op.transpose_a), visitor.attribute(op.transpose_b);
  const auto found = plans.find(key);
  if (found != plans.end()) return *found->second;
  device.activate();
  auto plan = make_plan(device, op);
  return *plans.emplace(std::move(key), std::move(plan)).first->second;
}

Refusal refuses(const Device& device, const Matmul& op) {
  if (Refusal r = not_for_library({&op.a, &op.b, &op.out})) return r;
  if (Refusal r = not_readable({&op.a, &op.b})) return r;
  if (Refusal r = not_plain({&op.a, &op.b, &op.out})) return r;
  if (op.a.elements() == 0 || op.b.elements() == 0 || op.out.elements() == 0) return "does not take an empty matrix";
  const Plan& plan = plan_for(of(device), op);
  if (!plan.refusal.empty()) return plan.refusal;
  return {};
}

// alpha or beta in the scale type of the plan.
struct Scalar {
  alignas(8) unsigned char bytes[8];
  Scalar(cudaDataType_t type, double value) {
    store(type == CUDA_R_64F ? DType::f64 : type == CUDA_R_16F ? DType::f16 : DType::f32, bytes, 0, value);
  }
};

void run(Device& device, const Matmul& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const Plan& plan = plan_for(cuda, op);
  HM_CHECK(plan.refusal.empty(), "cublaslt " + plan.refusal);
  Tensor scratch;
  if (plan.workspace) scratch = workspace(device, plan.workspace);
  const Scalar one(plan.arithmetic.scale, 1), beta(plan.arithmetic.scale, op.beta);
  HM_CUBLAS(cublasLtMatmul(cuda.blaslt(), plan.desc.handle, one.bytes, op.b.data(), plan.a.handle, op.a.data(),
                           plan.b.handle, beta.bytes, op.out.data(), plan.out.handle, op.out.data(), plan.out.handle,
                           &plan.algorithm, scratch.empty() ? nullptr : scratch.data(), plan.workspace, cuda.stream()));
}

}  // namespace

void add_blaslt_rows(KernelTable& table) { table.of<Matmul>().push_back({"cublaslt", Speed::real, refuses, run}); }

}  // namespace halfmark::kernels::cuda
