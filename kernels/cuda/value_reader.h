// A value of the device on its way to the host.
#pragma once

#include <functional>

#include "kernels/cuda/cuda.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

// The copy goes to page-locked memory, and an event behind it tells when it is there.
class CudaValueReader : public ValueReader {
 public:
  struct Owner {
    cudaStream_t stream;
    std::function<void()> activate;  // throws Error if the device is lost
    std::function<bool()> is_lost;
  };
  explicit CudaValueReader(Owner owner);
  ~CudaValueReader() override;
  void enqueue(const Tensor& value) override;
  float wait() override;

 private:
  Owner owner_;
  float* value_ = nullptr;
  cudaEvent_t copied_ = nullptr;
  bool pending_ = false;  // a copy that wait() has not waited for
};

}  // namespace halfmark::kernels::cuda
