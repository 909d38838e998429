// Norms as graphs of cuDNN: layer norm, RMS norm and batch norm, forward for training and backward; batch norm with constant
// statistics, forward.
#pragma once

#include <cstdint>

#include "kernels/cuda/cudnn_engines.h"
#include "kernels/cuda/cudnn_tensor.h"

namespace halfmark::kernels::cuda {

enum class NormKind : uint8_t { layer, rms, batch, constant };

struct NormProblem {
  NormKind kind = NormKind::layer;
  bool backward = false;
  DType dtype = DType::f32;       // of images; sums and statistics are fp32
  DType parameters = DType::f32;  // scale, shift and their gradients; constant statistics
  CudnnExtents x{};               // of rows: {rows, width, 1, 1}, plain
  bool last = false;              // images with the channels last
  bool has_shift = true;          // layer norm forward; batch norm always has one, RMS norm never
};

// Ids of the tensors that need memory.
namespace norm_ids {
inline constexpr int64_t kX = 1, kScale = 2, kMean = 3, kInverse = 4;                        // kMean: not of RMS norm
inline constexpr int64_t kShift = 5, kOut = 6, kDy = 7, kDx = 8, kDscale = 9, kDshift = 10;  // kDshift: as kMean
inline constexpr int64_t kRunningMean = 11, kRunningVariance = 12, kNextMean = 13, kNextVariance = 14;  // batch norm
inline constexpr int64_t kEpsilon = 15, kMomentum = 16;  // floats on the host, forward; kMomentum: batch norm
inline constexpr int64_t kVariance = 17;                 // constant
}  // namespace norm_ids

CudnnGraph norm_graph(const CudnnTarget& target, const NormProblem& problem);

}  // namespace halfmark::kernels::cuda
