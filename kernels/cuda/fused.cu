// What follows a product or convolution with bias and activation, where no library's epilogue is used: from sums in fp32 or fp64 to the
// result, rounded once.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/launch_fused.h"
#include "kernels/ops/activations.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kFusedThreads = 256;

template <class Wide>
__device__ Wide activated(FusedActivation activation, Wide z) {
  if (activation == FusedActivation::relu) return activations::Relu::forward(z);
  if (activation == FusedActivation::gelu_tanh) return activations::GeluTanh::forward(z);
  return z;
}

// A thread has eight columns of one row, which are one byte of the mask of ReLU.
template <class Wide>
__global__ void __launch_bounds__(kFusedThreads)
    fused_forward(FusedArgs s, const Wide* sums, AnyTyped bias, AnyTyped out, AnyTyped kept, uint8_t* mask) {
  const uint32_t i = blockIdx.x * kFusedThreads + threadIdx.x, row = i / s.bytes, byte = i % s.bytes;
  if (row >= s.rows) return;
  uint32_t bits = 0;
  for (uint32_t k = 0; k < 8; ++k) {
    const uint32_t column = byte * 8 + k, at = row * s.columns + column;
    if (column >= s.columns) break;
    Wide z = sums[at];
    if (bias.present()) z += bias.load<Wide>(column);
    if (kept.present()) kept.store<Wide>(at, z);
    if (z > 0) bits |= 1u << k;
    out.store<Wide>(at, activated(s.activation, z));
  }
  if (mask) mask[row * s.bytes + byte] = static_cast<uint8_t>(bits);
}

// The unrounded result replaces the sums, for the gradient of the bias.
template <class Wide>
__global__ void __launch_bounds__(kFusedThreads)
    fused_backward(FusedArgs s, Wide* sums, AnyTyped kept, const uint8_t* mask, AnyTyped out) {
  const uint32_t i = blockIdx.x * kFusedThreads + threadIdx.x;
  if (i >= s.rows * s.columns) return;
  const uint32_t row = i / s.columns, column = i % s.columns;
  Wide dz = sums[i];
  if (mask && (mask[row * s.bytes + column / 8] >> (column % 8) & 1) == 0) dz = 0;
  if (kept.present()) dz = activations::GeluTanh::backward(kept.load<Wide>(i), dz);
  sums[i] = dz;
  out.store<Wide>(i, dz);
}

template <class Wide>
__global__ void __launch_bounds__(kFusedThreads)
    fused_convolution(Channels s, bool relu, const Wide* sums, AnyTyped bias, AnyTyped out) {
  const uint32_t i = blockIdx.x * kFusedThreads + threadIdx.x;
  if (i >= s.outer * s.pixels * s.channels) return;
  Wide z = sums[i];
  if (bias.present()) z += bias.load<Wide>((s.last ? i : i / s.pixels) % s.channels);
  out.store<Wide>(i, relu ? activations::Relu::forward(z) : z);
}

}  // namespace

void launch_fused_forward(cudaStream_t stream, const FusedArgs& s, bool wide, void* sums, Array bias, Array out,
                          Array kept, uint8_t* mask) {
  const uint32_t blocks = blocks_for(s.rows * s.bytes, kFusedThreads);
  if (wide)
    fused_forward<double><<<blocks, kFusedThreads, 0, stream>>>(s, static_cast<const double*>(sums), AnyTyped(bias),
                                                                AnyTyped(out), AnyTyped(kept), mask);
  else
    fused_forward<float><<<blocks, kFusedThreads, 0, stream>>>(s, static_cast<const float*>(sums), AnyTyped(bias),
                                                               AnyTyped(out), AnyTyped(kept), mask);
  launched("fused_matmul");
}

void launch_fused_backward(cudaStream_t stream, const FusedArgs& s, bool wide, void* sums, Array kept,
                           const uint8_t* mask, Array out) {
  const uint32_t blocks = blocks_for(s.rows * s.columns, kFusedThreads);
  if (wide)
    fused_backward<double>
        <<<blocks, kFusedThreads, 0, stream>>>(s, static_cast<double*>(sums), AnyTyped(kept), mask, AnyTyped(out));
  else
    fused_backward<float>
        <<<blocks, kFusedThreads, 0, stream>>>(s, static_cast<float*>(sums), AnyTyped(kept), mask, AnyTyped(out));
  launched("fused_matmul_backward");
}

void launch_fused_convolution(cudaStream_t stream, const Channels& s, bool wide, bool relu, const void* sums,
                              Array bias, Array out) {
  const uint32_t blocks = blocks_for(s.elements(), kFusedThreads);
  if (wide)
    fused_convolution<double><<<blocks, kFusedThreads, 0, stream>>>(s, relu, static_cast<const double*>(sums),
                                                                    AnyTyped(bias), AnyTyped(out));
  else
    fused_convolution<float>
        <<<blocks, kFusedThreads, 0, stream>>>(s, relu, static_cast<const float*>(sums), AnyTyped(bias), AnyTyped(out));
  launched("fused_conv2d");
}

}  // namespace halfmark::kernels::cuda
