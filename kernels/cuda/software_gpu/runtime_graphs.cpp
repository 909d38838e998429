// Stream capture and graphs: CUDA Runtime API, "Stream Management" and "Graph Management". A graph is the work of one stream
// in its order; a capture ends without a graph if something waited for the stream meanwhile.
#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "kernels/cuda/software_gpu/devices.h"

struct CUgraph_st {
  GraphWork work;
};
struct CUgraphExec_st {
  int device = 0;
  std::shared_ptr<const GraphWork> work;  // launches that are still to run keep it
};

namespace halfmark::kernels::software_gpu {
namespace {

template <class Handle>
std::set<Handle>& live_handles() {
  static auto* all = new std::set<Handle>;
  return *all;
}

template <class Handle>
Handle checked_handle(Handle handle) {
  if (!live_handles<Handle>().contains(handle)) throw CallError{cudaErrorInvalidValue, "no such graph"};
  return handle;
}

template <class Handle>
void destroy_handle(Handle handle) {
  checked_handle(handle);
  live_handles<Handle>().erase(handle);
  delete handle;
}

void begin_capture(cudaStream_t handle) {
  const cudaStream_t stream = stream_of(handle);
  if (stream == &devices()[static_cast<size_t>(stream->device)].default_stream)
    throw CallError{cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured"};
  if (stream->captured) throw CallError{cudaErrorIllegalState, "the stream is being captured already"};
  stream->captured = std::make_unique<GraphWork>();
  stream->broken_capture = false;
}

cudaGraph_t end_capture(cudaStream_t handle) {
  const cudaStream_t stream = stream_of(handle);
  if (!stream->captured) throw CallError{cudaErrorIllegalState, "the stream is not being captured"};
  auto graph = std::make_unique<CUgraph_st>(std::move(*stream->captured));
  stream->captured.reset();
  if (stream->broken_capture)
    throw CallError{cudaErrorStreamCaptureInvalidated, "something waited for the stream while it was captured"};
  live_handles<cudaGraph_t>().insert(graph.get());
  return graph.release();
}

// The capture is over whatever its end returns, also an error that a test asked for.
void forget_capture(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  for (SoftwareDevice& device : devices())
    if (device.streams.contains(handle)) handle->captured.reset();
}

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  auto made = std::make_unique<CUgraphExec_st>();
  made->device = working_device().index;
  made->work = std::make_shared<const GraphWork>(checked_handle(graph)->work);
  live_handles<cudaGraphExec_t>().insert(made.get());
  return made.release();
}

std::shared_ptr<CUgraph_st> child_of(const GraphWork& work) {
  std::shared_ptr<CUgraph_st> child(new CUgraph_st{work}, [](CUgraph_st* graph) {
    live_handles<cudaGraph_t>().erase(graph);
    delete graph;
  });
  live_handles<cudaGraph_t>().insert(child.get());
  return child;
}

void launch(cudaGraphExec_t handle, cudaStream_t stream) {
  const cudaGraphExec_t executable = checked_handle(handle);
  if (stream_of(stream)->device != executable->device)
    throw CallError{cudaErrorInvalidResourceHandle, "graph and stream are of two devices"};
  const auto run = [work = executable->work] {
    for (const CUgraphNode_st& one : *work) one.run();
  };
  enqueue(stream, run, NodeKind::graph);
  if (const auto& captured = stream_of(stream)->captured) captured->back().child = child_of(*executable->work);
}

void list_nodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  size_t found = 0;
  for (CUgraphNode_st& one : checked_handle(graph)->work) {
    if (one.kind == NodeKind::none) continue;
    if (nodes && found < *count) nodes[found] = &one;
    ++found;
  }
  if (nodes && found < *count) std::fill(nodes + found, nodes + *count, nullptr);
  *count = nodes ? std::min(found, *count) : found;
}

cudaGraphNodeType type_of(cudaGraphNode_t node) {
  const auto has_node = [&](cudaGraph_t graph) {
    return !graph->work.empty() && node >= &graph->work.front() && node <= &graph->work.back();
  };
  const auto& graphs = live_handles<cudaGraph_t>();
  if (std::none_of(graphs.begin(), graphs.end(), has_node)) throw CallError{cudaErrorInvalidValue, "no such node"};
  switch (node->kind) {
    case NodeKind::kernel:
      return cudaGraphNodeTypeKernel;
    case NodeKind::copy:
      return cudaGraphNodeTypeMemcpy;
    case NodeKind::fill:
      return cudaGraphNodeTypeMemset;
    case NodeKind::release:
      return cudaGraphNodeTypeMemFree;
    case NodeKind::graph:
      return cudaGraphNodeTypeGraph;
    case NodeKind::none:
      break;
  }
  return cudaGraphNodeTypeEmpty;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu

using namespace halfmark::kernels::software_gpu;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return runtime_call("cudaStreamBeginCapture", true, [&] { begin_capture(stream); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t status =
      runtime_call("cudaStreamEndCapture", true, [&] { *graph = nullptr, *graph = end_capture(stream); });
  if (status != cudaSuccess) forget_capture(stream);
  return status;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return runtime_call("cudaGraphInstantiate", true, [&] {
    if (flags != 0) throw CallError{cudaErrorInvalidValue, "flags of graphs that the software GPU does not know"};
    *executable = instantiate(graph);
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return runtime_call("cudaGraphLaunch", true, [&] { launch(executable, stream); });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return runtime_call("cudaGraphGetNodes", true, [&] { list_nodes(graph, nodes, count); });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return runtime_call("cudaGraphNodeGetType", true, [&] { *type = type_of(node); });
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  return runtime_call("cudaGraphChildGraphNodeGetGraph", true, [&] {
    if (type_of(node) != cudaGraphNodeTypeGraph) throw CallError{cudaErrorInvalidValue, "the node is no graph"};
    *graph = node->child.get();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return runtime_call("cudaGraphDestroy", true, [&] { destroy_handle(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return runtime_call("cudaGraphExecDestroy", true, [&] { destroy_handle(executable); });
}

}  // extern "C"
