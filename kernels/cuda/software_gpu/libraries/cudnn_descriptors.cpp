// cuDNN's descriptors of tensors, filters and convolutions. What is refused here was tried with cuDNN 9.19, where these
// functions work without a GPU; cudnn_real_test.cpp compares.
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "kernels/cuda/software_gpu/libraries/cudnn_objects.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

Handles<cudnnTensorDescriptor_t, Image> images;
Handles<cudnnFilterDescriptor_t, Filter> filters;
Handles<cudnnConvolutionDescriptor_t, Convolution> convolutions;
thread_local std::string last_error;

// The newer types (INT64, FP8, FP4, ...) exist only in the graph API.
bool is_type(cudnnDataType_t type) { return type >= CUDNN_DATA_FLOAT && type <= CUDNN_DATA_BFLOAT16; }
bool is_filter_type(cudnnDataType_t type) { return is_type(type) && type != CUDNN_DATA_INT32; }
bool is_vector(cudnnDataType_t type) {
  return type == CUDNN_DATA_INT8x4 || type == CUDNN_DATA_UINT8x4 || type == CUDNN_DATA_INT8x32;
}
// Of vectors of channels, only with their types.
bool is_format(cudnnTensorFormat_t format, cudnnDataType_t type) {
  if (format == CUDNN_TENSOR_NCHW_VECT_C) return is_vector(type);
  return format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC;
}
bool all_positive(const std::array<int, 4>& extents) {
  for (const int extent : extents)
    if (extent <= 0) return false;
  return true;
}
bool fits_int(const std::array<int, 4>& extents) {
  int64_t elements = 1;
  for (const int extent : extents) {
    elements *= extent;
    if (elements > std::numeric_limits<int>::max()) return false;
  }
  return true;
}

template <class Descriptor, class Value>
cudnnStatus_t create(Descriptor* descriptor, Handles<Descriptor, Value>& all) {
  if (!descriptor) return refuse(kBad, "the place for the descriptor is null");
  *descriptor = all.create(Value{});
  return kFine;
}

// Null is accepted, as by the real library.
template <class Descriptor, class Value>
cudnnStatus_t destroy(Descriptor descriptor, Handles<Descriptor, Value>& all) {
  return !descriptor || all.destroy(descriptor) ? kFine : refuse(kBad, "not a live descriptor of this kind");
}

template <class Descriptor, class Value>
std::optional<Value> find_set(Descriptor descriptor, const Handles<Descriptor, Value>& all) {
  const std::optional<Value> value = all.find(descriptor);
  return value && value->set ? value : std::nullopt;
}

cudnnStatus_t set_image(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, const std::array<int, 4>& extents,
                        const std::array<int, 4>& strides) {
  if (!is_type(type)) return refuse(kBad, "no such data type");
  if (!all_positive(extents)) return refuse(kBad, "an extent is not positive");
  for (const int stride : strides)
    if (stride == 0) return refuse(kBad, "a stride is 0");
  if (!images.replace(descriptor, {true, type, extents, strides})) return refuse(kBad, "not a tensor descriptor");
  return kFine;
}

cudnnStatus_t change(cudnnConvolutionDescriptor_t descriptor, const auto& edit) {
  std::optional<Convolution> value = convolutions.find(descriptor);
  if (!value) return refuse(kBad, "not a convolution descriptor");
  edit(*value);
  convolutions.replace(descriptor, *value);
  return kFine;
}

}  // namespace

cudnnStatus_t refuse(cudnnStatus_t status, const std::string& why) {
  last_error = why;
  return status;
}
std::string take_last_error() {
  std::string text;
  text.swap(last_error);
  return text;
}

std::optional<Image> find(cudnnTensorDescriptor_t descriptor) { return find_set(descriptor, images); }
std::optional<Filter> find(cudnnFilterDescriptor_t descriptor) { return find_set(descriptor, filters); }
std::optional<Convolution> find(cudnnConvolutionDescriptor_t descriptor) { return find_set(descriptor, convolutions); }

std::array<int, 4> packed_strides(const std::array<int, 4>& e, cudnnTensorFormat_t format) {
  if (format == CUDNN_TENSOR_NHWC) return {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]};
  return {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1};
}

}  // namespace halfmark::kernels::software_gpu::cudnn

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cudnn;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return refuse(static_cast<cudnnStatus_t>(*failure), "injected failure")

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  HM_CALLED("cudnnCreateTensorDescriptor");
  return create(descriptor, images);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  HM_CALLED("cudnnDestroyTensorDescriptor");
  return destroy(descriptor, images);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  HM_CALLED("cudnnSetTensor4dDescriptor");
  const std::array<int, 4> extents{n, c, h, w};
  if (!is_type(type) || !is_format(format, type)) return refuse(kBad, "no such data type or format");
  if (!all_positive(extents)) return refuse(kBad, "an extent is not positive");
  if (!fits_int(extents)) return refuse(kUnsupported, "more than 2^31 - 1 elements");
  return set_image(descriptor, type, extents, packed_strides(extents, format));
}
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int n, int c,
                                           int h, int w, int stride_n, int stride_c, int stride_h, int stride_w) {
  HM_CALLED("cudnnSetTensor4dDescriptorEx");
  return set_image(descriptor, type, {n, c, h, w}, {stride_n, stride_c, stride_h, stride_w});
}
cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t descriptor, cudnnDataType_t* type, int* n,
                                         int* c, int* h, int* w, int* stride_n, int* stride_c, int* stride_h,
                                         int* stride_w) {
  HM_CALLED("cudnnGetTensor4dDescriptor");
  const std::optional<Image> image = images.find(descriptor);  // also of one that is not set
  if (!image) return refuse(kBad, "not a tensor descriptor");
  const auto give = [](int* place, int value) {
    if (place) *place = value;
  };
  if (type) *type = image->type;
  give(n, image->extents[0]), give(c, image->extents[1]), give(h, image->extents[2]), give(w, image->extents[3]);
  give(stride_n, image->strides[0]), give(stride_c, image->strides[1]);
  give(stride_h, image->strides[2]), give(stride_w, image->strides[3]);
  return kFine;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  HM_CALLED("cudnnCreateFilterDescriptor");
  return create(descriptor, filters);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  HM_CALLED("cudnnDestroyFilterDescriptor");
  return destroy(descriptor, filters);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  HM_CALLED("cudnnSetFilter4dDescriptor");
  if (!is_filter_type(type) || !is_format(format, type)) return refuse(kBad, "no such data type or format");
  if (!all_positive({k, c, h, w})) return refuse(kBad, "an extent is not positive");
  if (!filters.replace(descriptor, {true, type, format, {k, c, h, w}})) return refuse(kBad, "not a filter descriptor");
  return kFine;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  HM_CALLED("cudnnCreateConvolutionDescriptor");
  return create(descriptor, convolutions);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  HM_CALLED("cudnnDestroyConvolutionDescriptor");
  return destroy(descriptor, convolutions);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  HM_CALLED("cudnnSetConvolution2dDescriptor");
  if (pad_h < 0 || pad_w < 0) return refuse(kBad, "a padding is negative");
  if (stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 || dilation_w <= 0)
    return refuse(kBad, "a stride or dilation is not positive");
  if (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION) return refuse(kBad, "no such mode");
  // BFLOAT16 and INT8 are no compute types.
  if (compute != CUDNN_DATA_FLOAT && compute != CUDNN_DATA_DOUBLE && compute != CUDNN_DATA_HALF &&
      compute != CUDNN_DATA_INT32)
    return refuse(kBad, "no such compute type");
  return change(descriptor, [&](Convolution& value) {
    value.set = true, value.mode = mode, value.compute = compute;
    value.pad = {pad_h, pad_w}, value.stride = {stride_h, stride_w}, value.dilation = {dilation_h, dilation_w};
  });
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  HM_CALLED("cudnnSetConvolutionGroupCount");
  if (groups <= 0) return refuse(kBad, "the number of groups is not positive");
  return change(descriptor, [&](Convolution& value) { value.groups = groups; });
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  HM_CALLED("cudnnSetConvolutionMathType");
  if (math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) return refuse(kBad, "no such math type");
  return change(descriptor, [&](Convolution& value) { value.math = math; });
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t* math) {
  HM_CALLED("cudnnGetConvolutionMathType");
  const std::optional<Convolution> value = convolutions.find(descriptor);
  if (!value || !math) return refuse(kBad, "not a convolution descriptor, or no place for the math type");
  *math = value->math;
  return kFine;
}
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int* groups) {
  HM_CALLED("cudnnGetConvolutionGroupCount");
  const std::optional<Convolution> value = convolutions.find(descriptor);
  if (!value || !groups) return refuse(kBad, "not a convolution descriptor, or no place for the number");
  *groups = value->groups;
  return kFine;
}

}  // extern "C"
