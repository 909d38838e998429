// Shared by the files of rows: the lists they fill, the conversion of a tensor to an array, and the common refusals.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

// In order of preference; direct rows come last.
void add_blaslt_rows(KernelTable& table);
void add_blaslt_fused_rows(KernelTable& table);
void add_cublas_rows(KernelTable& table);
void add_scaled_rows(KernelTable& table, const CudaDevice& device);
void add_cudnn_rows(KernelTable& table);
void add_cudnn_fused_convolution_row(KernelTable& table);
void add_cudnn_attention_rows(KernelTable& table, const CudaDevice& device);
void add_own_rows(KernelTable& table);  // halfmark's own kernels: the families that follow
// After halfmark's own, with which they are compared.
void add_cudnn_norm_rows(KernelTable& table, const CudaDevice& device);
void add_cudnn_pool_rows(KernelTable& table);
void add_direct_rows(KernelTable& table);  // and those that are slow, after the libraries' rows and the others
void add_attention_rows(KernelTable& table);
void add_fused_rows(KernelTable& table);  // whose products are those of the rows before
void add_scaled_rows(KernelTable& table);
void add_dot_rows(KernelTable& table, CudaDevice& device);  // rows on the device's own matrix instructions

void add_elementwise_rows(KernelTable& table);
void add_copy_rows(KernelTable& table);
void add_reduce_rows(KernelTable& table);
void add_row_norm_rows(KernelTable& table);
void add_image_rows(KernelTable& table);
void add_resample_rows(KernelTable& table);
void add_sequence_rows(KernelTable& table);
void add_mask_rows(KernelTable& table);
void add_loss_rows(KernelTable& table);
void add_ctc_rows(KernelTable& table);
void add_optimizer_rows(KernelTable& table);
void add_quantize_rows(KernelTable& table);

// The device of a row of this plugin, made current for the thread.
CudaDevice& on(Device& device);
inline const CudaDevice& of(const Device& device) { return static_cast<const CudaDevice&>(device); }

Array array(const Tensor& tensor);  // an empty tensor gives null
Channels channels(const Tensor& tensor);
Image image(const Tensor& tensor);
WindowArgs window_args(const Window& window, int64_t kernel_h, int64_t kernel_w);
bool any_f64(std::initializer_list<const Tensor*> tensors);

// Scratch that counts as workspace. Its memory may be reused as soon as the handle is destroyed, because the stream
// keeps the order.
Tensor workspace(Device& device, size_t bytes);
Tensor workspace(Device& device, const Shape& shape, DType dtype, Layout layout);
// Whether its elements are where they are in this layout: of one channel or one pixel they are in the same place in both.
bool has_layout(const Tensor& tensor, Layout layout);
// The tensor itself, or a copy in the other layout (plain or nhwc) in workspace.
Tensor in_layout(CudaDevice& device, const Tensor& tensor, Layout layout);
void reorder(CudaDevice& device, const Tensor& from, const Tensor& to);

// Each returns the first reason found. Absent operands (empty tensors) pass.
Refusal not_readable_dtype(std::initializer_list<const Tensor*> tensors);  // device_code_reads(), launch.h
Refusal not_for_library(std::initializer_list<const Tensor*> tensors);     // f64, f32, f16, bf16 only
Refusal not_for_blaslt(std::initializer_list<const Tensor*> tensors);      // these and fp8
Refusal not_indexable(std::initializer_list<const Tensor*> tensors);       // between 1 and 2^31 - 1 elements
Refusal not_readable(std::initializer_list<const Tensor*> inputs);         // an input must be plain or nhwc
Refusal not_alike(std::initializer_list<const Tensor*> tensors);           // all in one layout (or not chosen yet)
Refusal not_plain(std::initializer_list<const Tensor*> vectors);

// Whether every value of the dtype is a value of the format, so that rounding an operand to it changes nothing.
bool holds(const Format& format, DType dtype);

}  // namespace halfmark::kernels::cuda
