// Pooling as a graph of cuDNN.
#pragma once

#include <cstdint>

#include "kernels/cuda/cudnn_engines.h"
#include "kernels/cuda/cudnn_tensor.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

struct PoolProblem {
  bool average = false, backward = false;
  DType dtype = DType::f32;  // of both images; sums are fp32, of f64 fp64
  CudnnExtents x{}, y{};     // image and result of the forward direction
  bool last = false;         // all with the channels last
  bool has_indices = false;  // of max pooling; backward always
  int kernel_h = 2, kernel_w = 2;
  Window window{};
};

// Ids of the tensors; backward: of their gradients.
namespace pool_ids {
inline constexpr int64_t kX = 1, kY = 2, kIndices = 3;
}
CudnnGraph pool_graph(const CudnnTarget& target, const PoolProblem& problem);

}  // namespace halfmark::kernels::cuda
