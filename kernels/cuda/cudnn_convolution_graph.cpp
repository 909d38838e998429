#include "kernels/cuda/cudnn_convolution_graph.h"

#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

using namespace convolution_ids;

struct Names {  // of the attributes of an operation
  cudnnBackendDescriptorType_t operation;
  int x, w, y, convolution, alpha, beta;
};
Names names_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Direction::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Direction::backward_weights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  throw Error("no such direction");
}

CudnnDescriptor tensor(const ConvolutionProblem& p, const Shape& shape, int64_t id, uint32_t alignment) {
  const int64_t n = shape[0], c = shape[1], h = shape[2], w = shape[3];
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, cudnn_type(p.dtype));
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
  if (p.last)
    made.set(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, 1, w * c, c});
  else
    made.set(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, h * w, w, 1});
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {int64_t{alignment}});
  made.finalize();
  return made;
}

CudnnDescriptor convolution(const ConvolutionProblem& p) {
  const Window& window = p.window;
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
           p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  for (const int padding : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
    made.set(padding, {window.pad_h, window.pad_w});
  made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {window.stride_h, window.stride_w});
  made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {window.dilation_h, window.dilation_w});
  made.finalize();
  return made;
}

}  // namespace

CudnnGraph convolution_graph(const CudnnTarget& target, const ConvolutionProblem& p) {
  std::vector<CudnnDescriptor> parts, operations;
  const Names names = names_of(p.direction);
  parts.push_back(tensor(p, p.x, kX, p.alignment_x));
  parts.push_back(tensor(p, p.w, kW, p.alignment_w));
  parts.push_back(tensor(p, p.y, kY, p.alignment_y));
  parts.push_back(convolution(p));
  CudnnDescriptor operation(names.operation);
  operation.set(names.x, parts[0]), operation.set(names.w, parts[1]), operation.set(names.y, parts[2]);
  operation.set(names.convolution, parts[3]);
  const auto scalar = [&](int name, double value) {
    if (p.dtype == DType::f64)
      operation.set(name, CUDNN_TYPE_DOUBLE, value);
    else
      operation.set(name, CUDNN_TYPE_FLOAT, static_cast<float>(value));
  };
  scalar(names.alpha, 1), scalar(names.beta, 0);
  operation.finalize();
  operations.push_back(std::move(operation));
  CudnnDescriptor graph = cudnn_graph(target, operations);
  return {std::move(parts), std::move(operations), std::move(graph)};
}

}  // namespace halfmark::kernels::cuda
