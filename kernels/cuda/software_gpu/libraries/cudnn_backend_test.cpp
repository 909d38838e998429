// The stand-in of cuDNN's graph API: what its engines compute, and which mistakes of a program it finds.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_testing.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

using Node = cudnnBackendDescriptor_t;

Node make(cudnnBackendDescriptorType_t type) {
  Node node = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(type, &node), CUDNN_STATUS_SUCCESS);
  return node;
}
template <class T>
cudnnStatus_t set(Node node, int name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  return cudnnBackendSetAttribute(node, static_cast<cudnnBackendAttributeName_t>(name), type,
                                  static_cast<int64_t>(values.size()), values.data());
}
void numbers(Node node, int name, const std::vector<int64_t>& values) {
  EXPECT_EQ(set(node, name, CUDNN_TYPE_INT64, values), CUDNN_STATUS_SUCCESS);
}
void part(Node node, int name, Node other) {
  EXPECT_EQ(set(node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{other}), CUDNN_STATUS_SUCCESS);
}

// A 3x3 convolution of one image of ones with a filter of `weight`, padding 1, in FP32 or FP16.
struct Graph {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t alignment = 16;
  std::array<int64_t, 3> ids{1, 2, 3};
  cudnnHandle_t handle = nullptr;
  std::vector<Node> configurations, plans;
  void *x = nullptr, *w = nullptr, *y = nullptr;

  Node tensor(size_t i, const std::vector<int64_t>& e) {
    const Node node = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    EXPECT_EQ(set(node, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type}), CUDNN_STATUS_SUCCESS);
    numbers(node, CUDNN_ATTR_TENSOR_DIMENSIONS, e);
    numbers(node, CUDNN_ATTR_TENSOR_STRIDES, {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1});
    numbers(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, {ids[i]}), numbers(node, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {alignment});
    EXPECT_EQ(cudnnBackendFinalize(node), CUDNN_STATUS_SUCCESS);
    return node;
  }
  void describe(double value, double weight, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    const Node convolution = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    numbers(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    ASSERT_EQ(set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                  std::vector{CUDNN_CROSS_CORRELATION}),
              CUDNN_STATUS_SUCCESS);
    for (const int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                           CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES})
      numbers(convolution, name, {1, 1});
    ASSERT_EQ(cudnnBackendFinalize(convolution), CUDNN_STATUS_SUCCESS);
    const Node operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(0, {1, 4, 4, 4}));
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(1, {4, 4, 3, 3}));
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(2, {1, 4, 4, 4}));
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    ASSERT_EQ(cudnnBackendFinalize(operation), CUDNN_STATUS_SUCCESS);
    const Node graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    ASSERT_EQ(cudnnBackendFinalize(graph), CUDNN_STATUS_SUCCESS);
    const Node heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    ASSERT_EQ(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode}),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnBackendFinalize(heuristic), CUDNN_STATUS_SUCCESS);
    int64_t count = 0;
    ASSERT_EQ(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                       &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    for (int64_t i = 0; i < count; ++i) configurations.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    ASSERT_EQ(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                       &count, configurations.data()),
              CUDNN_STATUS_SUCCESS);
    for (const Node configuration : configurations) {
      plans.push_back(make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
      part(plans.back(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      ASSERT_EQ(cudnnBackendFinalize(plans.back()), CUDNN_STATUS_SUCCESS);
    }
    const DType dtype = dtype_of(type);
    x = on_device(dtype, std::vector<double>(64, value)), w = on_device(dtype, std::vector<double>(144, weight));
    y = allocate_on_device(64 * size_of(dtype));
  }
  std::vector<cudnnBackendNumericalNote_t> notes(size_t i) const {
    Node engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(configurations[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &engine),
              CUDNN_STATUS_SUCCESS);
    std::vector<cudnnBackendNumericalNote_t> found(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    EXPECT_EQ(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, found.data()),
              CUDNN_STATUS_SUCCESS);
    found.resize(static_cast<size_t>(count));
    return found;
  }
  cudnnStatus_t run(size_t plan, const std::vector<int64_t>& uids, const std::vector<void*>& pointers,
                    void* workspace) const {
    const Node pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
    EXPECT_EQ(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void*>{workspace}),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnBackendFinalize(pack), CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle, plans[plan], pack);
  }
};

bool has(const std::vector<cudnnBackendNumericalNote_t>& notes, cudnnBackendNumericalNote_t note) {
  for (const auto one : notes)
    if (one == note) return true;
  return false;
}

// The centre of the image sums 36 products of `fine` and 1, which FP32 keeps, TF32 and FP16 do not.
TEST(CudnnBackend, EnginesComputeAsTheirNotesSay) {
  reset_device(90);
  const double fine = 1 + 0x1p-12;
  Graph graph;
  graph.describe(fine, 1);
  ASSERT_GE(graph.plans.size(), 4u);
  int narrow = 0, exact = 0;
  for (size_t i = 0; i < graph.plans.size(); ++i) {
    ASSERT_EQ(graph.run(i, {1, 2, 3}, {graph.x, graph.w, graph.y}, allocate_on_device(1 << 16)), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(run_enqueued(), cudaSuccess);
    const bool rounds = has(graph.notes(i), CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    EXPECT_EQ(from_device(graph.y, DType::f32, 64)[5], rounds ? 36 : 36 * fine) << i;
    ++(rounds ? narrow : exact);
  }
  EXPECT_GT(narrow, 0);
  EXPECT_GT(exact, 0);
}

TEST(CudnnBackend, WhatIsListedDependsOnTheGpuAndOnTheAlignment) {
  const auto listed = [](int architecture, cudnnDataType_t type, int64_t alignment, cudnnBackendHeurMode_t mode) {
    reset_device(architecture);
    Graph graph;
    graph.type = type, graph.alignment = alignment;
    graph.describe(1, 1, mode);
    int tensor_cores = 0;
    for (size_t i = 0; i < graph.plans.size(); ++i)
      tensor_cores += has(graph.notes(i), CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    return std::pair(graph.plans.size(), tensor_cores);
  };
  EXPECT_EQ(listed(75, CUDNN_DATA_BFLOAT16, 16, CUDNN_HEUR_MODE_A).first, 0u);
  EXPECT_GT(listed(80, CUDNN_DATA_BFLOAT16, 16, CUDNN_HEUR_MODE_A).second, 0);
  EXPECT_EQ(listed(80, CUDNN_DATA_BFLOAT16, 2, CUDNN_HEUR_MODE_A).second, 0);
  EXPECT_EQ(listed(90, CUDNN_DATA_FLOAT, 16, CUDNN_HEUR_MODE_FALLBACK).second, 0);
}

TEST(CudnnBackend, WrongPacksAreRefused) {
  reset_device(90);
  Graph graph;
  graph.describe(1, 1);
  void* workspace = allocate_on_device(1 << 16);
  const size_t plan = 0;  // one that needs a workspace
  auto* off = static_cast<std::byte*>(graph.x) + 4;
  EXPECT_EQ(graph.run(plan, {1, 2, 3}, {graph.x, graph.w, graph.y}, workspace), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(graph.run(plan, {1, 2, 3}, {graph.x, graph.w, graph.y}, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.run(plan, {1, 2}, {graph.x, graph.w}, workspace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.run(plan, {1, 2, 4}, {graph.x, graph.w, graph.y}, workspace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.run(plan, {1, 2, 3, 3}, {graph.x, graph.w, graph.y, graph.y}, workspace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.run(plan, {1, 2, 3}, {graph.x, nullptr, graph.y}, workspace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.run(plan, {1, 2, 3}, {off, graph.w, graph.y}, workspace), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(run_enqueued(), cudaSuccess);
  // What no function can see: image and filter exchanged are read beyond the filter's memory, or give another result.
  ASSERT_EQ(graph.run(plan, {1, 2, 3}, {graph.w, graph.x, graph.y}, workspace), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(run_enqueued(), cudaSuccess);
}

TEST(CudnnBackend, TwoTensorsOfOneIdAreRefused) {
  reset_device(90);
  Graph graph;
  graph.ids = {1, 1, 3};
  graph.describe(1, 1);
  EXPECT_EQ(graph.run(0, {1, 3}, {graph.x, graph.y}, allocate_on_device(1 << 16)), CUDNN_STATUS_BAD_PARAM);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cudnn
