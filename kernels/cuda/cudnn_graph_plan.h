// A graph of cuDNN whose arithmetic NVIDIA does not document (norms, pooling, convolutions with bias and ReLU), as it is prepared once for a shape: of the
// engines that keep to Math (cudnn_engines.h), those are used whose results on operands of the same shape agree with those
// of another row, with the same bits twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cudnn_trial.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

// What a trial compares.
struct TriedResult {
  std::string_view name;
  Tensor found, expected;  // the engine's, and that of the other row
  int64_t line = 0;        // elements that are compared with the largest of them; 0: all
  bool exact = false;
  double term = 0;   // the largest one of a sum that may cancel
  double share = 0;  // of each expected number that may be wrong; 0: the usual bounds
};
struct GraphTrial {
  CudnnOperands operands;
  std::vector<Tensor> memory;  // operands that are no results
  std::vector<TriedResult> results;
  std::function<void()> finish = [] {};  // makes results from others that the engine gives
};

class GraphPlan {
 public:
  // `what`: of the choice. A failure of a call is the reason of a refusal; a fault that the device does not survive is
  // thrown as Error.
  GraphPlan(CudaDevice& device, std::string what, TensorCores tensor_cores,
            const std::function<CudnnGraph(const CudnnTarget&)>& graph,
            const std::function<GraphTrial(CudaDevice&)>& trial);
  const std::string& refusal() const { return refusal_; }  // empty if there is an engine
  const std::string& choice() const { return choice_; }    // Kernel::choice
  void run(CudaDevice& device, const CudnnOperands& operands) const;

 private:
  void prepare(CudaDevice& device, TensorCores tensor_cores, const std::function<CudnnGraph(const CudnnTarget&)>& graph,
               const std::function<GraphTrial(CudaDevice&)>& trial);
  void take(CudnnCandidate& candidate, const CudnnCandidates& all, const CudnnChoice& chosen);

  std::string what_, refusal_, choice_;
  std::optional<CudnnGraph> graph_;
  std::optional<CudnnDescriptor> configuration_, plan_;
  size_t workspace_ = 0;
};

double largest_of(const Tensor& tensor);
// Operands of a trial: values with this mean and a variance of 1.
Tensor tried_values(Device& device, const Shape& shape, DType dtype, Layout layout, uint64_t seed, double mean = 0);

// The row that a trial compares with.
template <class Op>
void run_own_row(Device& device, const Op& op) {
  for (const Kernel<Op>& row : device.kernels().of<Op>())
    if (row.name.starts_with("cuda") && !row.refuses(device, op)) return run_with(row, op);
  throw Unsupported("has no row to be compared with");
}

// Throws Error if an operand begins elsewhere than at a multiple of 16 bytes, which the graphs promise. Refusals cannot depend
// on it, because they are kept by shape.
struct AlignmentCheck {
  void input(std::string_view name, const Tensor& tensor) const;
  void output(std::string_view name, const Tensor& tensor) const { input(name, tensor); }
  void attribute(const auto&) const {}
};

template <class Op>
void add_compared_row(KernelTable& table, Refusal (*refuses)(const Device&, const Op&), void (*run)(Device&, const Op&),
                      std::string (*choice)(const Device&, const Op&)) {
  Kernel<Op> row{"cudnn", Speed::real, refuses, run};
  row.choice = choice;
  table.of<Op>().push_back(row);
}

// The plan with this key, made if there is none.
const GraphPlan& graph_plan(const CudaDevice& device, const Signature& key,
                            const std::function<std::unique_ptr<GraphPlan>(CudaDevice&)>& make);

}  // namespace halfmark::kernels::cuda
