// A convolution in one of its directions as a graph of cuDNN, forward also with bias and ReLU.
#pragma once

#include <cstdint>

#include "kernels/cuda/cudnn_engines.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

enum class Direction : uint8_t { forward, backward_data, backward_weights };

struct ConvolutionProblem {
  Direction direction = Direction::forward;
  DType dtype = DType::f32;  // of all three; sums are fp32, of f64 fp64
  TensorCores tensor_cores = TensorCores::excluded;
  Shape x, w, y;      // image, filter, result of the forward direction
  bool last = false;  // all three with the channels last
  Window window{};
  uint32_t alignment_x = 256, alignment_w = 256, alignment_y = 256;  // bytes
  // After the forward direction. Between the operations are tensors of the type of the sums, without memory.
  bool bias = false, relu = false;
};

// Ids of the tensors.
namespace convolution_ids {
inline constexpr int64_t kX = 1, kW = 2, kY = 3, kBias = 4, kConvolved = 5, kPlusBias = 6;
}
CudnnGraph convolution_graph(const CudnnTarget& target, const ConvolutionProblem& problem);

}  // namespace halfmark::kernels::cuda
