// A CUDA graph of work on a device's stream.
#pragma once

#include <functional>
#include <map>

#include "kernels/cuda/cuda.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

class CudaDevice;

// Has memory of its own: what the work allocates or releases is used by nothing else, because each run writes it again.
class RecordedGraph : public RecordedWork {
 public:
  explicit RecordedGraph(CudaDevice& device) : device_(device) {}
  ~RecordedGraph() override;
  // Once. Throws Unsupported if the work waits for the stream, Error if a call fails or the work throws.
  void capture(const std::function<void()>& work);
  void run() override;

 private:
  friend class CudaDevice;
  CudaDevice& device_;
  cudaGraphExec_t executable_ = nullptr;
  std::multimap<size_t, void*> free_;  // its blocks that no tensor has, by size
};

}  // namespace halfmark::kernels::cuda
