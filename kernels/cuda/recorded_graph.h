// A CUDA graph of work on a device's stream.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

// Has memory of its own: what the work allocates or releases is used by nothing else, because each run writes it again.
class RecordedGraph : public RecordedWork {
 public:
  struct Owner {
    cudaStream_t stream;
    std::function<void()> activate;             // throws Error if the device is lost
    std::function<bool(RecordedGraph&)> leave;  // takes its blocks back; false: the device is lost
  };
  explicit RecordedGraph(Owner owner) : owner_(std::move(owner)) {}
  ~RecordedGraph() override;
  // Once. Throws Unsupported if the work waits for the stream, Error if a call fails or the work throws.
  void capture(const std::function<void()>& work);
  void run() override;
  RecordedCounts counts() const override { return counts_; }
  // A copy of these bytes of the host that lives as long as the graph: a copy that the graph repeats reads it each time.
  const void* keep(const void* host, size_t bytes);

  std::multimap<size_t, void*> free;  // its blocks that no tensor has, by size

 private:
  void count(cudaGraph_t graph);

  Owner owner_;
  RecordedCounts counts_;
  cudaGraphExec_t executable_ = nullptr;
  std::vector<void*> kept_;  // page-locked: a copy from other memory might wait for the stream
};

}  // namespace halfmark::kernels::cuda
