// CUDA Runtime API, "Graph Management"; CUDA Programming Guide, "CUDA Graphs", creating a graph by stream capture.
#include "kernels/cuda/recorded_graph.h"

#include <cstring>

#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

void RecordedGraph::capture(const std::function<void()>& work) {
  const cudaStream_t stream = owner_.stream;
  // Relaxed: cudaMalloc is allowed meanwhile.
  HM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  const auto end = [&] {
    const cudaError_t status = cudaStreamEndCapture(stream, &graph);
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status;
  };
  try {
    work();
  } catch (const Unsupported&) {
    if (end() == cudaSuccess) ignore(cudaGraphDestroy(graph));
    throw;
  } catch (const Error& error) {
    const cudaError_t status = end();
    if (status == cudaSuccess) ignore(cudaGraphDestroy(graph));
    if (status == cudaErrorStreamCaptureInvalidated) throw Unsupported(error.what());
    throw;
  } catch (...) {  // std::bad_alloc
    if (end() == cudaSuccess) ignore(cudaGraphDestroy(graph));
    throw;
  }
  if (const cudaError_t status = end(); status != cudaSuccess)
    throw Unsupported("the work cannot be recorded: " + failure_text(status, "cudaStreamEndCapture"));
  try {
    count(graph);
    HM_CUDA(cudaGraphInstantiate(&executable_, graph, 0));
  } catch (...) {
    ignore(cudaGraphDestroy(graph));
    throw;
  }
  ignore(cudaGraphDestroy(graph));
}

void RecordedGraph::count(cudaGraph_t graph) {
  size_t number = 0;
  HM_CUDA(cudaGraphGetNodes(graph, nullptr, &number));
  std::vector<cudaGraphNode_t> nodes(number);
  if (number > 0) HM_CUDA(cudaGraphGetNodes(graph, nodes.data(), &number));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    HM_CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) ++counts_.kernels;
    if (type == cudaGraphNodeTypeMemcpy) ++counts_.copies;
    if (type == cudaGraphNodeTypeMemset) ++counts_.fills;
    if (type != cudaGraphNodeTypeGraph) continue;
    cudaGraph_t child = nullptr;  // belongs to the node
    HM_CUDA(cudaGraphChildGraphNodeGetGraph(node, &child));
    count(child);
  }
}

void RecordedGraph::run() {
  owner_.activate();
  HM_CUDA(cudaGraphLaunch(executable_, owner_.stream));
}

const void* RecordedGraph::keep(const void* host, size_t bytes) {
  void* kept = nullptr;
  HM_CUDA(cudaMallocHost(&kept, bytes));
  kept_.push_back(kept);
  std::memcpy(kept, host, bytes);
  return kept;
}

// What a lost device had is gone with its context.
RecordedGraph::~RecordedGraph() {
  if (!owner_.leave(*this)) return;
  if (executable_) ignore(cudaGraphExecDestroy(executable_));
  for (void* kept : kept_) ignore(cudaFreeHost(kept));
}

}  // namespace halfmark::kernels::cuda
