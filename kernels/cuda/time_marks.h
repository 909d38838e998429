// Points in the work of a GPU, as events.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/stream_of.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

class CudaTimeMarks : public TimeMarks {
 public:
  explicit CudaTimeMarks(StreamOf owner);
  ~CudaTimeMarks() override;
  size_t mark() override;
  double seconds(size_t from, size_t to) override;

 private:
  StreamOf owner_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace halfmark::kernels::cuda
