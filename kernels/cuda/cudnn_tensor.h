// Tensors of four axes in graphs of cuDNN.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/cuda/cudnn_backend.h"

namespace halfmark::kernels::cuda {

using CudnnExtents = std::array<int64_t, 4>;

// Of packed memory: [n, c, h, w], or with the channels last.
inline CudnnExtents packed_strides(const CudnnExtents& e, bool last) {
  const auto [n, c, h, w] = e;
  return last ? CudnnExtents{c * h * w, 1, w * c, c} : CudnnExtents{c * h * w, h * w, w, 1};
}

struct CudnnTensor {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  CudnnExtents extents{1, 1, 1, 1}, strides{1, 1, 1, 1};
  int64_t alignment = 16;  // bytes
  bool is_virtual = false;
  bool by_value = false;  // a number on the host
};

inline CudnnDescriptor describe(const CudnnTensor& tensor) {
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(tensor.extents));
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(tensor.strides));
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {tensor.id});
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {tensor.alignment});
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, tensor.is_virtual);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, tensor.by_value);
  made.finalize();
  return made;
}

}  // namespace halfmark::kernels::cuda
