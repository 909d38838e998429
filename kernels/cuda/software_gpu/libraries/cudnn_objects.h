// What cuDNN's handles and descriptors hold.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/software_gpu/libraries/handles.h"

namespace halfmark::kernels::software_gpu::cudnn {

struct Handle {
  int device = 0;
  cudaStream_t stream = nullptr;
};

// Dimensions n, c, h, w; strides in elements, in that order. Nothing is set when a descriptor has just been created.
struct Image {
  bool set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<int, 4> extents{}, strides{};
};
struct Filter {
  bool set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  std::array<int, 4> extents{};  // k, c of a group, h, w
};
struct Convolution {
  bool set = false;
  std::array<int, 2> pad{}, stride{1, 1}, dilation{1, 1};
  cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  int groups = 1;
  cudnnReorderType_t reorder = CUDNN_DEFAULT_REORDER;
};

std::optional<Handle> find(cudnnHandle_t handle);
std::optional<Image> find(cudnnTensorDescriptor_t descriptor);  // these three: only ones that are set
std::optional<Filter> find(cudnnFilterDescriptor_t descriptor);
std::optional<Convolution> find(cudnnConvolutionDescriptor_t descriptor);

// Keeps the text for cudnnGetLastErrorString() in this thread and returns the status.
cudnnStatus_t refuse(cudnnStatus_t status, const std::string& why);
std::string take_last_error();

std::array<int, 4> packed_strides(const std::array<int, 4>& extents, cudnnTensorFormat_t format);

// What the legacy functions of cuDNN 9.19 answer: the categories, not the specific codes of cudnn_graph.h (seen).
inline constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM, kUnsupported = CUDNN_STATUS_NOT_SUPPORTED,
                               kFine = CUDNN_STATUS_SUCCESS;

}  // namespace halfmark::kernels::software_gpu::cudnn
