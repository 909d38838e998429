#include "kernels/cuda/time_marks.h"

#include <utility>

namespace halfmark::kernels::cuda {

CudaTimeMarks::CudaTimeMarks(StreamOf owner) : owner_(std::move(owner)) {}

// What a lost device had is gone with its context.
CudaTimeMarks::~CudaTimeMarks() {
  if (owner_.is_lost()) return;
  for (const cudaEvent_t event : events_) ignore(cudaEventDestroy(event));
}

size_t CudaTimeMarks::mark() {
  owner_.activate();
  cudaEvent_t event = nullptr;
  HM_CUDA(cudaEventCreate(&event));
  events_.push_back(event);
  HM_CUDA(cudaEventRecord(event, owner_.stream));
  return events_.size() - 1;
}

double CudaTimeMarks::seconds(size_t from, size_t to) {
  owner_.activate();
  HM_CUDA(cudaEventSynchronize(events_.at(to)));
  float milliseconds = 0;
  HM_CUDA(cudaEventElapsedTime(&milliseconds, events_.at(from), events_.at(to)));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace halfmark::kernels::cuda
