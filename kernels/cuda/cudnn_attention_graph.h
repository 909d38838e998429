// Attention as a graph of cuDNN, in the form that its fused engines take: forward for training, and backward. The form is
// that of NVIDIA's cudnn-frontend (its nodes of scaled dot product attention), for the library recognises no other.
#pragma once

#include <cstdint>

#include "kernels/cuda/cudnn_engines.h"

namespace halfmark::kernels::cuda {

struct AttentionProblem {
  bool backward = false;
  DType dtype = DType::f16;                       // f16 or bf16
  int64_t n = 0, heads = 0, t = 0, s = 0, d = 0;  // q is [n, heads, t, d], k and v are [n, heads, s, d]
  bool causal = false;
  // Where their elements are: false: one after the other. true: those of PackedAttention, where q, k and v are parts of
  // [n, t, 3, heads, d] (so t is s) and out is [n, t, heads, d]; the gradients are as their operands.
  bool packed = false;
  uint32_t alignment = 16;  // bytes, of every tensor
};

// Ids of the tensors that need memory.
namespace attention_ids {
inline constexpr int64_t kQ = 1, kK = 2, kV = 3, kOut = 4, kLogSum = 5, kDOut = 6, kDq = 7, kDk = 8, kDv = 9;
inline constexpr int64_t kAlong = 10;  // backward: scratch, f32 [n, heads, t]: sums of dout out
// Floats on the host: the factor of the scores; with causal, -infinity; backward, 1.
inline constexpr int64_t kScale = 11, kMinusInfinity = 12, kOne = 13;
}  // namespace attention_ids

CudnnGraph attention_graph(const CudnnTarget& target, const AttentionProblem& problem);

}  // namespace halfmark::kernels::cuda
