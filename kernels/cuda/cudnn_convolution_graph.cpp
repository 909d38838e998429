#include "kernels/cuda/cudnn_convolution_graph.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_tensor.h"

namespace halfmark::kernels::cuda {
namespace {

using namespace convolution_ids;

// Of a pointwise operation. The header marks the name as deprecated and has no other.
constexpr int kNanPropagation = 2;

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

cudnnDataType_t sum_type(const ConvolutionProblem& p) {
  return p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

CudnnTensor image(const ConvolutionProblem& p, const Shape& shape, int64_t id, uint32_t alignment) {
  const CudnnExtents extents{shape[0], shape[1], shape[2], shape[3]};
  return {.id = id,
          .type = cudnn_type(p.dtype),
          .extents = extents,
          .strides = packed_strides(extents, p.last),
          .alignment = int64_t{alignment}};
}

CudnnDescriptor convolution(const ConvolutionProblem& p) {
  const Window& window = p.window;
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sum_type(p));
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  for (const int padding : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
    made.set(padding, {window.pad_h, window.pad_w});
  made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {window.stride_h, window.stride_w});
  made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {window.dilation_h, window.dilation_w});
  made.finalize();
  return made;
}

class ConvolutionBuilder {
 public:
  explicit ConvolutionBuilder(const ConvolutionProblem& problem) : p_(problem) {}

  CudnnGraph build(const CudnnTarget& target) {
    add_convolution();
    if (p_.bias) {
      const CudnnExtents extents{1, p_.y[1], 1, 1};
      const size_t bias = part(
          {.id = kBias, .type = cudnn_type(p_.dtype), .extents = extents, .strides = packed_strides(extents, p_.last)});
      add_pointwise(CUDNN_POINTWISE_ADD, bias, p_.relu ? kPlusBias : kY);
    }
    if (p_.relu) add_pointwise(CUDNN_POINTWISE_RELU_FWD, {}, kY);
    CudnnDescriptor graph = cudnn_graph(target, operations_);
    return {std::move(parts_), std::move(operations_), std::move(graph)};
  }

 private:
  size_t part(const CudnnTensor& tensor) {
    parts_.push_back(describe(tensor));
    return parts_.size() - 1;
  }
  // The result of an operation: that of the graph, or one between two operations.
  size_t result(int64_t id) {
    CudnnTensor tensor = image(p_, p_.y, id, p_.alignment_y);
    if (id != kY) tensor.type = sum_type(p_), tensor.is_virtual = true, tensor.alignment = 16;
    return last_ = part(tensor);
  }

  void add_convolution() {
    const Names names = names_of(p_.direction);
    const size_t x = part(image(p_, p_.x, kX, p_.alignment_x)), w = part(image(p_, p_.w, kW, p_.alignment_w)),
                 y = result(p_.bias || p_.relu ? kConvolved : kY);
    parts_.push_back(convolution(p_));
    CudnnDescriptor operation(names.operation);
    operation.set(names.x, parts_[x]), operation.set(names.w, parts_[w]), operation.set(names.y, parts_[y]);
    operation.set(names.convolution, parts_.back());
    const auto scalar = [&](int name, double value) {
      if (p_.dtype == DType::f64)
        operation.set(name, CUDNN_TYPE_DOUBLE, value);
      else
        operation.set(name, CUDNN_TYPE_FLOAT, static_cast<float>(value));
    };
    scalar(names.alpha, 1), scalar(names.beta, 0);
    operation.finalize();
    operations_.push_back(std::move(operation));
  }

  // Of the last result, and of a further operand if there is one.
  void add_pointwise(cudnnPointwiseMode_t mode, std::optional<size_t> other, int64_t id) {
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sum_type(p_));
    if (mode == CUDNN_POINTWISE_RELU_FWD) how.set(kNanPropagation, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    how.finalize();
    parts_.push_back(std::move(how));
    const size_t described = parts_.size() - 1, operand = last_, into = result(id);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts_[described]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, parts_[operand]);
    if (other) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, parts_[*other]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts_[into]);
    operation.finalize();
    operations_.push_back(std::move(operation));
  }

  const ConvolutionProblem& p_;
  std::vector<CudnnDescriptor> parts_, operations_;
  size_t last_ = 0;  // the part that is the last result
};

}  // namespace

CudnnGraph convolution_graph(const CudnnTarget& target, const ConvolutionProblem& problem) {
  return ConvolutionBuilder(problem).build(target);
}

}  // namespace halfmark::kernels::cuda
