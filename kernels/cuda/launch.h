// The interface between host code (.cpp, which uses tensors) and device code (.cu, which uses arrays).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/number/dtype.h"
#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::cuda {

// The dtypes that device code reads and writes element by element (arrays.cuh). A new dtype is not read until it is
// added here, together with its accessors.
constexpr bool device_code_reads(DType dtype) {
  if (dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
      dtype == DType::e4m3 || dtype == DType::e5m2)
    return true;
  return false;
}

struct Array {  // of a dtype that device code reads; data may be null for an optional operand
  void* data = nullptr;
  DType dtype = DType::f32;
};

// Offset of channel c of pixel j. last: j * channels + c, else (j / pixels * channels + c) * pixels + j % pixels.
struct Channels {
  uint32_t outer, channels, pixels;  // images, channels, pixels per image; a matrix [n, c] has one pixel
  bool last;
  uint32_t count() const { return outer * pixels; }  // values per channel
  uint32_t elements() const { return outer * pixels * channels; }
};

struct Image {  // [n, c, h, w], in either layout
  uint32_t n, c, h, w;
  bool last;
};

struct WindowArgs {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Every launcher enqueues on the stream and throws Error if a launch fails. Element counts are below 2^31.

// elementwise.cu. Operands have the same layout; outputs may be inputs.
void launch_cast(cudaStream_t, uint32_t n, Array x, Array out);
// `activation`: its number in the list of activations.h.
void launch_activation(cudaStream_t, size_t activation, uint32_t n, Array x, Array out);
void launch_activation_backward(cudaStream_t, size_t activation, uint32_t n, Array kept, Array dy, Array dx);
void launch_add(cudaStream_t, uint32_t n, Array a, Array b, Array out);
void launch_add_bias(cudaStream_t, const Channels&, Array x, Array bias, Array out);
void launch_unscale(cudaStream_t, uint32_t n, Array gradient, float* found_inf, float inverse_scale);
void launch_sgd_step(cudaStream_t, uint32_t n, Array parameter, Array gradient, Array velocity, Array low,
                     const formulas::SgdConstants<double>&);
void launch_softmax_backward(cudaStream_t, uint32_t rows, uint32_t classes, Array log_probabilities,
                             const int32_t* labels, Array dlogits, double factor);

// reduce.cu. `scratch` has the wide type: doubles if `wide`, else floats.
size_t channel_scratch_elements(const Channels&);  // number of wide elements that the three below need
void launch_bias_gradient(cudaStream_t, const Channels&, bool wide, void* scratch, Array dy, Array dbias);
struct BatchNormArrays {
  Array x, scale, shift, out, mean, variance, running_mean, running_variance;
};
void launch_batch_norm(cudaStream_t, const Channels&, bool wide, void* scratch, const BatchNormArrays&, double momentum,
                       double epsilon);
void launch_batch_norm_inference(cudaStream_t, const Channels&, const BatchNormArrays&, double epsilon);
struct BatchNormBackwardArrays {
  Array x, dy, scale, mean, variance, dx, dscale, dshift;
};
void launch_batch_norm_backward(cudaStream_t, const Channels&, bool wide, void* scratch, const BatchNormBackwardArrays&,
                                double epsilon);
// scratch: one wide element per row
void launch_softmax_cross_entropy(cudaStream_t, uint32_t rows, uint32_t classes, bool wide, void* scratch, Array logits,
                                  const int32_t* labels, Array loss, Array log_probabilities);

// images.cu
void launch_max_pool(cudaStream_t, const Image& x, const Image& out, const WindowArgs&, Array x_data, Array out_data,
                     uint8_t* indices, bool indices_last);
void launch_max_pool_backward(cudaStream_t, const Image& dy, const Image& dx, const WindowArgs&, Array dy_data,
                              const uint8_t* indices, bool indices_last, Array dx_data);
void launch_avg_pool(cudaStream_t, const Image& x, const Image& out, const WindowArgs&, Array x_data, Array out_data);
void launch_avg_pool_backward(cudaStream_t, const Image& dy, const Image& dx, const WindowArgs&, Array dy_data,
                              Array dx_data);
// `size` bytes per element; to_last: [n][c][p] to [n][p][c], else the reverse.
void launch_reorder(cudaStream_t, uint32_t outer, uint32_t channels, uint32_t pixels, size_t size, bool to_last,
                    const void* x, void* out);

// direct.cu: one thread, or one block, per output; any mixture
// of dtypes, fused multiply-adds in fp32, or in fp64 if `wide`.
struct MatmulArgs {
  uint32_t m, n, k;
  bool transpose_a, transpose_b;
  double beta;
};
void launch_direct_matmul(cudaStream_t, const MatmulArgs&, bool wide, Array a, Array b, Array out);
void launch_direct_conv(cudaStream_t, const Image& x, const Image& w, const Image& y, const WindowArgs&,
                        uint32_t groups, bool wide, Array x_data, Array w_data, Array y_data);
void launch_direct_conv_backward_data(cudaStream_t, const Image& x, const Image& w, const Image& y, const WindowArgs&,
                                      uint32_t groups, bool wide, Array dy, Array w_data, Array dx);
void launch_direct_conv_backward_weights(cudaStream_t, const Image& x, const Image& w, const Image& y,
                                         const WindowArgs&, uint32_t groups, bool wide, Array x_data, Array dy,
                                         Array dw);

// Waits about `microseconds` on the device, so that the timed work is enqueued before it starts.
void launch_pause(cudaStream_t, uint32_t microseconds);
// Whether this build contains code that the current device can run; else the reason.
const char* code_for_device();  // null = yes

}  // namespace halfmark::kernels::cuda
