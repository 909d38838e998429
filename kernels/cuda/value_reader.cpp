#include "kernels/cuda/value_reader.h"

#include <utility>

#include "kernels/number/error.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels::cuda {

CudaValueReader::CudaValueReader(StreamOf owner) : owner_(std::move(owner)) {
  owner_.activate();
  HM_CUDA(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
  void* memory = nullptr;
  if (const cudaError_t status = cudaMallocHost(&memory, sizeof(float)); status != cudaSuccess) {
    ignore(cudaEventDestroy(copied_));
    check(status, "cudaMallocHost");
  }
  value_ = static_cast<float*>(memory);
}

// What a lost device had is gone with its context.
CudaValueReader::~CudaValueReader() {
  if (owner_.is_lost()) return;
  if (pending_) ignore(cudaEventSynchronize(copied_));
  ignore(cudaFreeHost(value_));
  ignore(cudaEventDestroy(copied_));
}

void CudaValueReader::enqueue(const Tensor& value) {
  HM_CHECK(value.dtype() == DType::f32 && value.elements() == 1, "a value to be read must be one f32");
  owner_.activate();
  HM_CUDA(cudaMemcpyAsync(value_, value.data(), sizeof(float), cudaMemcpyDeviceToHost, owner_.stream));
  if (const cudaError_t status = cudaEventRecord(copied_, owner_.stream); status != cudaSuccess) {
    (void)cudaGetLastError();
    ignore(cudaStreamSynchronize(owner_.stream));  // nothing else says when the copy has been made
    check(status, "cudaEventRecord");
  }
  pending_ = true;
}

float CudaValueReader::wait() {
  owner_.activate();
  HM_CUDA(cudaEventSynchronize(copied_));
  pending_ = false;
  return *value_;
}

}  // namespace halfmark::kernels::cuda
