// CUDA Runtime API, "Graph Management"; CUDA Programming Guide, "CUDA Graphs", creating a graph by stream capture.
#include "kernels/cuda/recorded_graph.h"

#include "kernels/cuda/cuda_device.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

void RecordedGraph::capture(const std::function<void()>& work) {
  const cudaStream_t stream = device_.stream();
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
    if (end() == cudaSuccess) cudaGraphDestroy(graph);
    throw;
  } catch (const Error& error) {
    const cudaError_t status = end();
    if (status == cudaSuccess) cudaGraphDestroy(graph);
    if (status == cudaErrorStreamCaptureInvalidated) throw Unsupported(error.what());
    throw;
  }
  if (const cudaError_t status = end(); status != cudaSuccess)
    throw Unsupported(device_.name() + " cannot record this work: " + failure_text(status, "cudaStreamEndCapture"));
  const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
}

void RecordedGraph::run() {
  device_.activate();
  HM_CUDA(cudaGraphLaunch(executable_, device_.stream()));
}

RecordedGraph::~RecordedGraph() { device_.forget(*this); }

}  // namespace halfmark::kernels::cuda
