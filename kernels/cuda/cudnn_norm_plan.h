// Norms by cuDNN as they are prepared once for a shape, and the operands of their graphs.
#pragma once

#include <cstdint>

#include "kernels/cuda/cudnn_graph_plan.h"
#include "kernels/cuda/cudnn_norm_graph.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {

const GraphPlan& norm_plan(const CudaDevice& device, const NormProblem& problem);

// Gradients that are not wanted are written to scratch.
struct RowGradients {
  Tensor dscale, dshift;
  RowGradients(CudaDevice& device, const NormalizeRowsBackward& op);
};
// What cuDNN reads and writes for batch norm beside the operands of the operation. `unbiased`: the variance of the batch,
// which is cuDNN's next running variance with a momentum of 1; the running statistics before it count nothing.
struct BatchScratch {
  Tensor mean_before, variance_before, next_mean, unbiased, inverse;
  BatchScratch(CudaDevice& device, int64_t entries);
};

// The operands of a call. `epsilon` lives until the call returns.
CudnnOperands operands_of(const NormalizeRows& op, const float& epsilon);
CudnnOperands operands_of(const NormalizeRowsBackward& op, const RowGradients& gradients);
CudnnOperands operands_of(const BatchNorm& op, const BatchScratch& scratch, const float& epsilon);
CudnnOperands operands_of(const BatchNormInference& op, const float& epsilon);
CudnnOperands operands_of(const BatchNormBackward& op, const Tensor& dy, const Tensor& inverse);

// After cuDNN: the variance, and the running statistics.
void keep_statistics(CudaDevice& device, const BatchNorm& op, const BatchScratch& scratch);
// Before it: what it keeps in place of the variance.
Tensor inverse_deviations(CudaDevice& device, const BatchNormBackward& op);

}  // namespace halfmark::kernels::cuda
