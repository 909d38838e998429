// Points in the work of a GPU, as events.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

class CudaTimeMarks : public TimeMarks {
 public:
  struct Owner {
    cudaStream_t stream;
    std::function<void()> activate;  // throws Error if the device is lost
    std::function<bool()> is_lost;
  };
  explicit CudaTimeMarks(Owner owner);
  ~CudaTimeMarks() override;
  size_t mark() override;
  double seconds(size_t from, size_t to) override;

 private:
  Owner owner_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace halfmark::kernels::cuda
