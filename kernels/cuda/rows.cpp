#include "kernels/cuda/rows.h"

#include <cstdint>
#include <limits>
#include <string>

namespace halfmark::kernels::cuda {

void add_own_rows(KernelTable& table) {
  add_elementwise_rows(table), add_copy_rows(table);
  add_reduce_rows(table), add_row_norm_rows(table);
  add_image_rows(table), add_resample_rows(table);
  add_sequence_rows(table), add_mask_rows(table);
  add_loss_rows(table), add_ctc_rows(table);
  add_optimizer_rows(table), add_quantize_rows(table);
}

CudaDevice& on(Device& device) {
  auto& cuda = static_cast<CudaDevice&>(device);
  cuda.activate();
  return cuda;
}

Array array(const Tensor& tensor) {
  if (tensor.empty()) return {};
  return {const_cast<void*>(tensor.data()), tensor.dtype()};
}

namespace {
uint32_t extent(const Shape& shape, int axis) { return static_cast<uint32_t>(shape[axis]); }
}  // namespace

Channels channels(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  if (s.rank() == 2) return {extent(s, 0), extent(s, 1), 1, true};
  return {extent(s, 0), extent(s, 1), extent(s, 2) * extent(s, 3), tensor.layout() == Layout::nhwc};
}

Image image(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  return {extent(s, 0), extent(s, 1), extent(s, 2), extent(s, 3), tensor.layout() == Layout::nhwc};
}

WindowArgs window_args(const Window& w, int64_t kernel_h, int64_t kernel_w) {
  return {static_cast<int>(kernel_h),
          static_cast<int>(kernel_w),
          w.stride_h,
          w.stride_w,
          w.pad_h,
          w.pad_w,
          w.dilation_h,
          w.dilation_w};
}

bool any_f64(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (!tensor->empty() && tensor->dtype() == DType::f64) return true;
  return false;
}

namespace {
bool is_image_layout(Layout layout) { return layout == Layout::plain || layout == Layout::nhwc; }
}  // namespace

Tensor workspace(Device& device, size_t bytes) {
  return workspace(device, Shape{static_cast<int64_t>(bytes)}, DType::u8, Layout::plain);
}

Tensor workspace(Device& device, const Shape& shape, DType dtype, Layout layout) {
  const PurposeScope scope(Purpose::workspace);
  return Tensor(device, shape, dtype, layout);
}

void reorder(CudaDevice& device, const Tensor& from, const Tensor& to) {
  if (from.layout() == to.layout()) {
    HM_CUDA(cudaMemcpyAsync(const_cast<void*>(to.data()), from.data(), from.bytes(), cudaMemcpyDeviceToDevice,
                            device.stream()));
    return;
  }
  const Shape& s = from.shape();
  launch_reorder(device.stream(), extent(s, 0), extent(s, 1), extent(s, 2) * extent(s, 3), size_of(from.dtype()),
                 to.layout() == Layout::nhwc, from.data(), const_cast<void*>(to.data()));
}

bool has_layout(const Tensor& tensor, Layout layout) {
  const Shape& s = tensor.shape();
  const bool alike = s.rank() == 4 && (s[1] == 1 || s[2] * s[3] == 1);
  return tensor.layout() == layout || (alike && is_image_layout(tensor.layout()) && is_image_layout(layout));
}

Tensor in_layout(CudaDevice& device, const Tensor& tensor, Layout layout) {
  if (has_layout(tensor, layout)) return tensor;
  const Tensor copy = workspace(device, tensor.shape(), tensor.dtype(), layout);
  reorder(device, tensor, copy);
  return copy;
}

namespace {

// Whether the libraries' rows pass this dtype to the library.
bool is_for_library(DType dtype) {
  if (dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16) return true;
  return false;
}

bool is_for_blaslt(DType dtype) { return is_for_library(dtype) || dtype == DType::e4m3 || dtype == DType::e5m2; }

Refusal not_among(bool (*allowed)(DType), std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (tensor->empty() || allowed(tensor->dtype())) continue;
    std::string text;
    for (const DType dtype : dtypes())
      if (allowed(dtype)) text.append(text.empty() ? "takes " : ", ").append(name_of(dtype));
    return text + ", not " + std::string(name_of(tensor->dtype()));
  }
  return {};
}

}  // namespace

Refusal not_readable_dtype(std::initializer_list<const Tensor*> tensors) {
  return not_among(device_code_reads, tensors);
}

Refusal not_for_library(std::initializer_list<const Tensor*> tensors) { return not_among(is_for_library, tensors); }

Refusal not_for_blaslt(std::initializer_list<const Tensor*> tensors) { return not_among(is_for_blaslt, tensors); }

Refusal not_indexable(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (tensor->empty()) continue;
    // A thread takes up to four elements, so the last thread's first index must fit as well.
    if (tensor->elements() > std::numeric_limits<int32_t>::max() - 1024) return "takes fewer than 2^31 elements";
    if (tensor->elements() == 0) return "does not take an empty tensor";
  }
  return {};
}

Refusal not_readable(std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* tensor : inputs)
    if (!tensor->empty() && tensor->layout() != Layout::plain && tensor->layout() != Layout::nhwc)
      return "reads layouts plain and nhwc, not " + std::string(name_of(tensor->layout()));
  return {};
}

Refusal not_alike(std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* tensor : tensors) {
    if (tensor->empty() || tensor->layout() == Layout::any) continue;
    if (!first) first = tensor;
    if (!has_layout(*tensor, first->layout()))
      return "takes only operands of one layout, not " + std::string(name_of(first->layout())) + " and " +
             std::string(name_of(tensor->layout()));
  }
  return {};
}

Refusal not_plain(std::initializer_list<const Tensor*> vectors) {
  for (const Tensor* tensor : vectors)
    if (!tensor->empty() && tensor->layout() != Layout::plain && tensor->layout() != Layout::any)
      return "takes only layout plain, not " + std::string(name_of(tensor->layout()));
  return {};
}

bool holds(const Format& format, DType dtype) {
  const Format& stored = format_of(dtype);
  return format.specials == Specials::ieee && format.exponent_bits >= stored.exponent_bits &&
         format.fraction_bits >= stored.fraction_bits;
}

}  // namespace halfmark::kernels::cuda
