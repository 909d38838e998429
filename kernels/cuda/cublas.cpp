// Rows `cublas`: cublasGemmEx and cublasGemmStridedBatchedEx. FP32, TF32, FP16 and BF16 with wide sums, FP16 with FP16 sums,
// FP64. Unlike cublasLt these functions take no mask of implementations. So a compute type is used that promises the
// arithmetic (cublas_api.h at cublasComputeType_t: default types "guarantee internal storage precision with at least the
// same precision and range", pedantic ones "exact specified internal storage format"); of tf32, fp32 and bf16 a product
// shows it (cublas_trial.cpp). What is only guaranteed as a lower bound is stated in the choice.
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr int64_t kMostExtent = std::numeric_limits<int>::max();

std::string promise_of(const Math& math, DType in) {
  if (math.accumulate == kFp16) return "fp16 in all steps (pedantic, without tensor cores)";
  if (in == DType::f64) return "fp64 in all steps";
  if (math.multiply == kTf32 && in == DType::f32) return "tf32 seen in a product; sums at least fp32";
  if (in == DType::f32) return "fp32 seen in a product; sums at least fp32";
  return "sums and partial sums at least fp32";
}

template <class Op>
Refusal problem_for(const CudaDevice& device, const Op& op, CublasProblem& problem) {
  problem.a = blaslt_matrix(op.a, op.transpose_a), problem.b = blaslt_matrix(op.b, op.transpose_b);
  problem.out = blaslt_matrix(op.out, false);
  problem.is_batched = std::is_same_v<Op, BatchedMatmul>;
  if constexpr (std::is_same_v<Op, BatchedMatmul>) problem.batch = op.out.shape()[0];
  for (const auto* one : {&problem.a, &problem.b, &problem.out})
    if (one->rows > kMostExtent || one->columns > kMostExtent) return "takes extents below 2^31";
  if (problem.batch > kMostExtent) return "takes batches below 2^31";
  if (op.math.split_k != 1) return "chooses the split of k itself: split_k must be 1";
  const int64_t depth = op.transpose_a ? problem.a.rows : problem.a.columns;
  BlasltArithmetic arithmetic;  // the same compute types
  if (Refusal r = blaslt_arithmetic(device.compute_capability(), op.a.dtype(), op.b.dtype(), op.out.dtype(), op.math,
                                    depth, arithmetic))
    return r;
  problem.compute = arithmetic.compute, problem.scale = arithmetic.scale;
  // COMPUTE_16F permits wider sums.
  if (problem.compute == CUBLAS_COMPUTE_16F) problem.compute = CUBLAS_COMPUTE_16F_PEDANTIC;
  problem.rounds_to_tf32 = problem.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  problem.promise = promise_of(op.math, op.a.dtype());
  return {};
}

template <class Op>
const CublasTrial& trial_of(const CudaDevice& device, const Op& op, const CublasProblem& problem) {
  Signature key;
  for (const auto* one : {&problem.a, &problem.b, &problem.out}) add_to(key, *one);
  key.add(problem.is_batched ? problem.batch : -1);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(op.math);
  return cublas_trial(device, key, problem);
}

template <class Op>
Refusal refuses_gemm(const Device& device, const Op& op) {
  if (Refusal r = not_for_library({&op.a, &op.b, &op.out})) return r;
  if (Refusal r = not_readable({&op.a, &op.b})) return r;
  if (Refusal r = not_plain({&op.a, &op.b, &op.out})) return r;
  if (op.a.elements() == 0 || op.b.elements() == 0 || op.out.elements() == 0) return "does not take an empty matrix";
  CublasProblem problem;
  if (Refusal r = problem_for(of(device), op, problem)) return r;
  try {
    const CublasTrial& trial = trial_of(of(device), op, problem);
    if (!trial.refusal().empty()) return trial.refusal();
  } catch (const Error& error) {  // it cannot be opened
    throw_if_lost(of(device), error);
    return error.what();
  }
  return {};
}

template <class Op>
std::string gemm_choice(const Device& device, const Op& op) {
  CublasProblem problem;
  (void)problem_for(of(device), op, problem);
  return trial_of(of(device), op, problem).choice;
}

template <class Op>
void run_gemm(Device& device, const Op& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  CublasProblem problem;
  if (const Refusal r = problem_for(cuda, op, problem)) throw Error("cublas " + *r);
  const Cublas& cublas = cublas_of(cuda);
  CublasPointers pointers{.a = op.a.data(), .b = op.b.data(), .out = op.out.data()};
  if constexpr (std::is_same_v<Op, Matmul>) pointers.beta = op.beta;
  check(cublas.multiply(problem, pointers), problem.is_batched ? "cublasGemmStridedBatchedEx" : "cublasGemmEx");
}

template <class Op>
void add_gemm_row(KernelTable& table) {
  Kernel<Op> row{"cublas", Speed::real, refuses_gemm<Op>, run_gemm<Op>};
  row.choice = gemm_choice<Op>;
  table.of<Op>().push_back(row);
}

}  // namespace

void add_cublas_rows(KernelTable& table) {
  add_gemm_row<Matmul>(table);
  add_gemm_row<BatchedMatmul>(table);
}

}  // namespace halfmark::kernels::cuda
