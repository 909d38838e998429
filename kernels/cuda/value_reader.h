// A value of the device on its way to the host.
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/stream_of.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

// The copy goes to page-locked memory, and an event behind it tells when it is there.
class CudaValueReader : public ValueReader {
 public:
  explicit CudaValueReader(StreamOf owner);
  ~CudaValueReader() override;
  void enqueue(const Tensor& value) override;
  float wait() override;

 private:
  StreamOf owner_;
  float* value_ = nullptr;
  cudaEvent_t copied_ = nullptr;
  bool pending_ = false;  // a copy that wait() has not waited for
};

}  // namespace halfmark::kernels::cuda
