// Operations of attention, and a convolution with bias and ReLU, beside those of the stand-in: right and wrong uses that
// cuDNN checks without a GPU.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/asked_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct Form {
  std::vector<int64_t> extents, strides;
  int64_t id = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = true, by_value = false;
};
Form packed(int64_t id, int64_t a, int64_t b, int64_t c, int64_t d) {
  return {.extents = {a, b, c, d}, .strides = {b * c * d, c * d, d, 1}, .id = id};
}
Node tensor(Asked& asked, const Form& form) {
  const Node node = asked.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  asked.set(node, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{form.type});
  asked.numbers(node, CUDNN_ATTR_TENSOR_DIMENSIONS, form.extents);
  asked.numbers(node, CUDNN_ATTR_TENSOR_STRIDES, form.strides);
  asked.numbers(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, {form.id});
  asked.numbers(node, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
  asked.set(node, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &form.is_virtual);
  asked.set(node, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &form.by_value);
  return asked.finalized(node);
}

Node pointwise(Asked& asked, cudnnPointwiseMode_t mode, const std::vector<Node>& operands, Node result,
               int64_t axis = -1, int lacks = 0) {
  const Node how = asked.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  if (lacks != 1) asked.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
  if (lacks != 2) asked.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  if (axis >= 0) asked.numbers(how, CUDNN_ATTR_POINTWISE_AXIS, {axis});
  asked.finalized(how);
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  constexpr int kNames[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                            CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (size_t i = 0; i < operands.size(); ++i) asked.part(operation, kNames[i], operands[i]);
  if (lacks != 3) asked.part(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result);
  return asked.finalized(operation);
}
Node reduction(Asked& asked, cudnnReduceTensorOp_t mode, Node x, Node y, int lacks = 0) {
  const Node how = asked.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  if (lacks != 1) asked.set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, std::vector{mode});
  if (lacks != 2) asked.set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  asked.finalized(how);
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  asked.part(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  if (lacks != 3) asked.part(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  return asked.finalized(operation);
}
Node product(Asked& asked, Node a, Node b, Node c, int lacks = 0) {
  const Node how = asked.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  if (lacks != 1) asked.set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  asked.finalized(how);
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  asked.part(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  if (lacks != 2) asked.part(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  if (lacks != 3) asked.part(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  return asked.finalized(operation);
}
Node reshape(Asked& asked, Node x, Node y) {
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  asked.part(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  return asked.finalized(operation);
}
void graph(Asked& asked, const std::vector<Node>& operations) {
  const Node node = asked.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  asked.set(node, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
  asked.finalized(node);
}

Answers operations_of(const Library& library) {
  Asked asked(library);
  const Node x = tensor(asked, packed(1, 2, 3, 4, 5)), y = tensor(asked, packed(2, 2, 3, 4, 5)),
             z = tensor(asked, packed(3, 2, 3, 4, 5)), row = tensor(asked, packed(4, 2, 3, 4, 1));
  Form value = packed(5, 1, 1, 1, 1);
  value.is_virtual = false, value.by_value = true;
  const Node scalar = tensor(asked, value), other = tensor(asked, packed(6, 2, 3, 4, 6));
  for (int lacks = 0; lacks <= 3; ++lacks) pointwise(asked, CUDNN_POINTWISE_MUL, {x, y}, z, -1, lacks);
  pointwise(asked, CUDNN_POINTWISE_MUL, {x}, z), pointwise(asked, CUDNN_POINTWISE_MUL, {x, scalar}, z);
  pointwise(asked, CUDNN_POINTWISE_SUB, {x, row}, z), pointwise(asked, CUDNN_POINTWISE_SUB, {row, x}, z);
  pointwise(asked, CUDNN_POINTWISE_RSQRT, {x}, z), pointwise(asked, CUDNN_POINTWISE_RSQRT, {row}, z);
  pointwise(asked, CUDNN_POINTWISE_EXP, {x}, z), pointwise(asked, CUDNN_POINTWISE_EXP, {x, y}, z);
  pointwise(asked, CUDNN_POINTWISE_BINARY_SELECT, {x, scalar, y}, z);
  pointwise(asked, CUDNN_POINTWISE_BINARY_SELECT, {x, scalar}, z);
  for (const int64_t axis : {-1, 0, 3}) pointwise(asked, CUDNN_POINTWISE_GEN_INDEX, {x}, z, axis);
  // Without an operator (1) NVIDIA's library answers by what its memory held before.
  for (const int lacks : {0, 2, 3}) reduction(asked, CUDNN_REDUCE_TENSOR_ADD, x, row, lacks);
  reduction(asked, CUDNN_REDUCE_TENSOR_MAX, x, row), reduction(asked, CUDNN_REDUCE_TENSOR_MAX, x, y);
  reduction(asked, CUDNN_REDUCE_TENSOR_ADD, x, other);
  const Node b = tensor(asked, packed(7, 2, 3, 5, 7)), c = tensor(asked, packed(8, 2, 3, 4, 7)),
             wrong = tensor(asked, packed(9, 2, 3, 6, 7)), heads = tensor(asked, packed(10, 2, 4, 5, 7));
  for (int lacks = 0; lacks <= 3; ++lacks) product(asked, x, b, c, lacks);
  product(asked, x, wrong, c), product(asked, x, b, wrong), product(asked, x, heads, c);
  Form turned = packed(11, 2, 3, 5, 4);
  turned.strides = {60, 20, 1, 5};
  reshape(asked, x, tensor(asked, turned)), reshape(asked, x, other);
  return asked.answers;
}

Answers graphs_of(const Library& library) {
  Asked asked(library);
  const auto memory = [&](int64_t id) {
    Form form = packed(id, 2, 3, 4, 5);
    form.is_virtual = false;
    return tensor(asked, form);
  };
  const Node x = memory(1), y = memory(2), between = tensor(asked, packed(3, 2, 3, 4, 5)),
             nowhere = tensor(asked, packed(4, 2, 3, 4, 5)), same_id = tensor(asked, packed(3, 2, 3, 4, 5));
  const Node first = pointwise(asked, CUDNN_POINTWISE_EXP, {x}, between),
             second = pointwise(asked, CUDNN_POINTWISE_LOG, {between}, y),
             again = pointwise(asked, CUDNN_POINTWISE_LOG, {x}, between),
             from_nowhere = pointwise(asked, CUDNN_POINTWISE_LOG, {nowhere}, y),
             by_equal = pointwise(asked, CUDNN_POINTWISE_LOG, {same_id}, y);
  graph(asked, {first, second}), graph(asked, {second, first});
  graph(asked, {from_nowhere}), graph(asked, {first, again, second}), graph(asked, {first, by_equal});
  return asked.answers;
}

Node convolution(Asked& asked, Node x, Node w, Node y, cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
  const Node how = asked.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  asked.numbers(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  asked.set(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{compute});
  asked.set(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
  for (const int padding : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
    asked.numbers(how, padding, {0, 0});
  for (const int ones : {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS})
    asked.numbers(how, ones, {1, 1});
  asked.finalized(how);
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  asked.part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  asked.part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  asked.part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
  asked.set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0F});
  asked.set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0F});
  return asked.finalized(operation);
}
// lacks: as of pointwise(); 4: the NaN propagation.
Node relu(Asked& asked, Node x, Node y, int lacks = 0) {
  constexpr int kNanPropagation = 2;  // a name that the header marks as deprecated
  const Node how = asked.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  asked.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{CUDNN_POINTWISE_RELU_FWD});
  if (lacks != 2) asked.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  if (lacks != 4) asked.set(how, kNanPropagation, CUDNN_TYPE_NAN_PROPOGATION, std::vector{CUDNN_PROPAGATE_NAN});
  asked.finalized(how);
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  asked.part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  asked.part(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (lacks != 3) asked.part(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return asked.finalized(operation);
}

Answers fused_convolutions_of(const Library& library) {
  Asked asked(library);
  const auto memory = [&](int64_t id, const std::vector<int64_t>& e) {
    return tensor(asked, {.extents = e,
                          .strides = {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]},
                          .id = id,
                          .type = CUDNN_DATA_HALF,
                          .is_virtual = false});
  };
  const auto between = [&](int64_t id, const std::vector<int64_t>& e) {
    return tensor(asked, {.extents = e, .strides = {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]}, .id = id});
  };
  const std::vector<int64_t> result{2, 16, 5, 3};
  const Node x = memory(1, {2, 8, 7, 5}), w = memory(2, {16, 8, 3, 3}), y = memory(3, result),
             bias = memory(4, {1, 16, 1, 1}), sums = between(5, result), plus_bias = between(6, result),
             larger = between(7, {2, 16, 6, 3});
  const Node convolved = convolution(asked, x, w, sums),
             added = pointwise(asked, CUDNN_POINTWISE_ADD, {sums, bias}, plus_bias),
             clipped = relu(asked, plus_bias, y), clipped_sums = relu(asked, sums, y),
             added_last = pointwise(asked, CUDNN_POINTWISE_ADD, {sums, bias}, y);
  graph(asked, {convolved, added, clipped}), graph(asked, {clipped, added, convolved});
  graph(asked, {convolved, added_last}), graph(asked, {convolved, clipped_sums});
  graph(asked, {convolved, added, added}), graph(asked, {convolved, convolved, clipped_sums});
  for (int lacks = 2; lacks <= 4; ++lacks) relu(asked, plus_bias, y, lacks);
  pointwise(asked, CUDNN_POINTWISE_ADD, {sums}, plus_bias);
  // Of a bias or a result with other extents than the image it says nothing; the stand-in refuses them.
  convolution(asked, x, w, larger), convolution(asked, w, x, sums);
  return asked.answers;
}

TEST(RealLibraries, AConvolutionWithBiasAndReluAnswersAlike) {
  const Library real(HALFMARK_CUDNN), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUDNN;
  EXPECT_EQ(first_difference(fused_convolutions_of(real), fused_convolutions_of(ours)), -1);
}

TEST(RealLibraries, TheOperationsOfAttentionAnswerAlike) {
  const Library real(HALFMARK_CUDNN), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUDNN;
  EXPECT_EQ(first_difference(operations_of(real), operations_of(ours)), -1);
  EXPECT_EQ(first_difference(graphs_of(real), graphs_of(ours)), -1);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
