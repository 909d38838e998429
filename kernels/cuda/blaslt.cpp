// Rows `cublaslt`: matrix products of one matrix and of batches. FP32, TF32, FP16 and BF16 with wide sums, FP16 with FP16
// sums, FP64, FP8 without scales. What is promised, and how it is held, is in blaslt_arithmetic.h and blaslt_plan.h.
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

template <class Op>
Refusal problem_of(const CudaDevice& device, const Op& op, BlasltProblem& problem) {
  problem.a = blaslt_matrix(op.a, op.transpose_a), problem.b = blaslt_matrix(op.b, op.transpose_b);
  problem.out = blaslt_matrix(op.out, false);
  if constexpr (std::is_same_v<Op, BatchedMatmul>) problem.batch = op.out.shape()[0];
  problem.fast_accumulate = op.math.fast_accumulate;
  const int64_t depth = op.transpose_a ? problem.a.rows : problem.a.columns;
  if (Refusal r = blaslt_arithmetic(device.compute_capability(), op.a.dtype(), op.b.dtype(), op.out.dtype(), op.math,
                                    depth, problem.arithmetic))
    return r;
  return not_for_narrow(device.compute_capability(), problem);
}

template <class Op>
const BlasltPlan& plan_for(const CudaDevice& device, const Op& op, const BlasltProblem& problem) {
  Signature key;
  for (const auto* one : {&problem.a, &problem.b, &problem.out}) add_to(key, *one);
  key.add(problem.batch);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(op.math);
  return blaslt_plan(device, key, problem);
}

template <class Op>
Refusal refuses(const Device& device, const Op& op) {
  if (Refusal r = not_for_blaslt({&op.a, &op.b, &op.out})) return r;
  if (Refusal r = not_readable({&op.a, &op.b})) return r;
  if (Refusal r = not_plain({&op.a, &op.b, &op.out})) return r;
  if (op.a.elements() == 0 || op.b.elements() == 0 || op.out.elements() == 0) return "does not take an empty matrix";
  BlasltProblem problem;
  if (Refusal r = problem_of(of(device), op, problem)) return r;
  const BlasltPlan& plan = plan_for(of(device), op, problem);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

template <class Op>
std::string choice(const Device& device, const Op& op) {
  BlasltProblem problem;
  (void)problem_of(of(device), op, problem);
  return plan_for(of(device), op, problem).choice();
}

template <class Op>
void run(Device& device, const Op& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  BlasltProblem problem;
  if (const Refusal r = problem_of(cuda, op, problem)) throw Error("cublaslt " + *r);
  const BlasltPlan& plan = plan_for(cuda, op, problem);
  HM_CHECK(plan.refusal().empty(), "cublaslt " + plan.refusal());
  Tensor scratch;
  if (plan.workspace_bytes()) scratch = workspace(device, plan.workspace_bytes());
  BlasltPointers pointers{.a = op.a.data(), .b = op.b.data(), .out = op.out.data()};
  if constexpr (std::is_same_v<Op, Matmul>) pointers.beta = op.beta;
  plan.run(cuda, pointers, scratch.empty() ? nullptr : scratch.data());
}

template <class Op>
void add_row(KernelTable& table) {
  Kernel<Op> row{"cublaslt", Speed::real, refuses<Op>, run<Op>};
  row.choice = choice<Op>;
  table.of<Op>().push_back(row);
}

}  // namespace

void add_blaslt_rows(KernelTable& table) {
  add_row<Matmul>(table);
  add_row<BatchedMatmul>(table);
}

}  // namespace halfmark::kernels::cuda
