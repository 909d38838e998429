// The descriptors of cuDNN's graph API beside those of the stand-in: right and wrong uses, in what works without a GPU.
// Uses that crash cuDNN 9.19 are left out: null where a descriptor is expected, and a descriptor of another type.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/asked_testing.h"
#include "kernels/cuda/software_gpu/libraries/device_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct TensorForm {
  std::vector<int64_t> extents{2, 8, 9, 9}, strides{648, 81, 9, 1};
  int64_t id = 1, alignment = 16;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int lacks = 0;  // the number of the attribute that is not set; 0: all are
};
Node tensor(Asked& asked, const TensorForm& form) {
  const Node node = asked.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  if (form.lacks != 1) asked.set(node, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{form.type});
  if (form.lacks != 2) asked.numbers(node, CUDNN_ATTR_TENSOR_DIMENSIONS, form.extents);
  if (form.lacks != 3) asked.numbers(node, CUDNN_ATTR_TENSOR_STRIDES, form.strides);
  if (form.lacks != 4) asked.numbers(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, {form.id});
  if (form.lacks != 5) asked.numbers(node, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {form.alignment});
  return node;
}
TensorForm packed(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w) {
  return {.extents = {n, c, h, w}, .strides = {c * h * w, h * w, w, 1}, .id = id};
}

struct ConvolutionForm {
  std::vector<int64_t> paddings{1, 1}, dilations{1, 1}, strides{1, 1};
  int64_t axes = 2;
  int lacks = 0;
};
Node convolution(Asked& asked, const ConvolutionForm& form) {
  const Node node = asked.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  if (form.lacks != 1) asked.numbers(node, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {form.axes});
  if (form.lacks != 2)
    asked.set(node, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  if (form.lacks != 3)
    asked.set(node, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
              std::vector{CUDNN_CROSS_CORRELATION});
  if (form.lacks != 4) asked.numbers(node, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, form.paddings);
  if (form.lacks != 5) asked.numbers(node, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, form.paddings);
  if (form.lacks != 6) asked.numbers(node, CUDNN_ATTR_CONVOLUTION_DILATIONS, form.dilations);
  if (form.lacks != 7) asked.numbers(node, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, form.strides);
  return node;
}

Node operation(Asked& asked, Node x, Node w, Node y, Node how, int lacks = 0) {
  const Node node = asked.make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  if (lacks != 1) asked.part(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  if (lacks != 2) asked.part(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  if (lacks != 3) asked.part(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  if (lacks != 4) asked.part(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
  if (lacks != 5) asked.set(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0F});
  if (lacks != 6) asked.set(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_DOUBLE, std::vector{0.0});
  return node;
}

Answers attributes_of(const Library& library) {
  Asked asked(library);
  asked.destroy(nullptr);
  const Node node = asked.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::vector<int64_t> numbers(16, 1);
  asked.get(node, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4);  // not finalized
  asked.set(node, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, nullptr);
  for (const auto type : {CUDNN_TYPE_INT32, CUDNN_TYPE_FLOAT, CUDNN_TYPE_DATA_TYPE, CUDNN_TYPE_VOID_PTR})
    asked.set(node, CUDNN_ATTR_TENSOR_DIMENSIONS, type, 4, numbers.data());
  for (const int64_t count : {-1, 0, 1, 4, 9})
    asked.set(node, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, count, numbers.data());
  for (const int64_t count : {0, 1, 2})
    asked.set(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, count, numbers.data());
  for (const int foreign : {int{CUDNN_ATTR_CONVOLUTION_DILATIONS}, int{CUDNN_ATTR_ENGINEHEUR_MODE}, 12345})
    asked.set(node, foreign, CUDNN_TYPE_INT64, 1, numbers.data());
  const Node made = asked.finalized(tensor(asked, {}));
  asked.finalized(made);
  asked.numbers(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, {3});
  for (const int64_t wanted : {0, 2, 4, 8}) asked.get(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, wanted);
  asked.get(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4);
  asked.get(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1);
  asked.destroy(made);
  return asked.answers;
}

Answers finalizing_of(const Library& library) {
  Asked asked(library);
  const auto try_tensor = [&](const TensorForm& form) { return asked.finalized(tensor(asked, form)); };
  for (int lacks = 0; lacks <= 5; ++lacks) try_tensor({.lacks = lacks});
  for (const int64_t alignment : {-4, 0, 1, 2, 3, 4, 8, 24, 256}) try_tensor({.alignment = alignment});
  for (const auto type : {CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    for (const int64_t alignment : {1, 2, 4, 8}) try_tensor({.alignment = alignment, .type = type});
  try_tensor({.strides = {81, 9, 1}}), try_tensor({.strides = {1, 1, 1, 1}}), try_tensor({.strides = {648, 81, 9, -1}});
  try_tensor({.extents = {2, 8}, .strides = {8, 1}}), try_tensor({.id = 0});

  const auto try_convolution = [&](const ConvolutionForm& form) { return asked.finalized(convolution(asked, form)); };
  for (int lacks = 0; lacks <= 7; ++lacks) try_convolution({.lacks = lacks});
  try_convolution({.paddings = {-1, 1}}), try_convolution({.dilations = {0, 1}}), try_convolution({.strides = {0, 1}});
  try_convolution({.paddings = {1, 1, 1}}), try_convolution({.axes = 3}), try_convolution({.axes = 9});

  const Node x = try_tensor(packed(1, 2, 8, 9, 9)), w = try_tensor(packed(2, 16, 8, 3, 3)),
             y = try_tensor(packed(3, 2, 16, 9, 9)), how = try_convolution({});
  for (int lacks = 0; lacks <= 6; ++lacks) asked.finalized(operation(asked, x, w, y, how, lacks));
  asked.finalized(operation(asked, tensor(asked, packed(1, 2, 8, 9, 9)), w, y, how));
  asked.finalized(operation(asked, x, w, y, convolution(asked, {})));
  // Filters, and results, that fit and that do not.
  for (const int64_t filters : {15, 16})
    for (const int64_t channels : {1, 2, 3, 4, 8, 16})
      for (const int64_t size : {1, 3})
        for (const int64_t high : {7, 9, 11})
          asked.finalized(operation(asked, x, try_tensor(packed(2, filters, channels, size, 3)),
                                    try_tensor(packed(3, 2, filters, high, 9)), how));
  asked.finalized(operation(asked, x, w, try_tensor(packed(3, 3, 16, 9, 9)), how));
  asked.finalized(operation(asked, x, w, try_tensor(packed(3, 2, 15, 9, 9)), how));

  const Node whole = asked.finalized(operation(asked, x, w, y, how));
  asked.finalized(asked.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  Node graph = asked.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  asked.part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation(asked, x, w, y, how));
  asked.finalized(graph);
  graph = asked.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const cudnnHandle_t none = nullptr;
  asked.set(graph, 800, CUDNN_TYPE_HANDLE, 1, &none);  // its deprecated handle
  asked.part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, whole);
  asked.finalized(graph);
  asked.finalized(asked.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  for (const int mode : {-1, 0, 1, 2, 3, 4, 9}) {
    const Node heuristic = asked.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    asked.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
  }
  asked.finalized(asked.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  asked.finalized(asked.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  for (const size_t pointers : {1, 2, 3}) {
    const Node pack = asked.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    asked.numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {1, 2});
    asked.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::vector<void*>(pointers));
    asked.finalized(pack);
  }
  return asked.answers;
}

TEST(RealLibraries, TheGraphApiAnswersAlike) {
  const Library real(HALFMARK_CUDNN), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUDNN;
  reset_device(90);
  EXPECT_EQ(first_difference(attributes_of(real), attributes_of(ours)), -1);
  EXPECT_EQ(first_difference(finalizing_of(real), finalizing_of(ours)), -1);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
