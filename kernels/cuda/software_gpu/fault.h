// An error of device code or of enqueued work. It becomes the sticky error of the device: every later call that uses
// the device returns `code`, and cudaGetErrorString of that code ends with the text.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace halfmark::kernels::software_gpu {

struct Fault : std::runtime_error {
  Fault(cudaError_t status, const std::string& text) : std::runtime_error(text), code(status) {}
  cudaError_t code;
};

// Enqueued work that is not done yet, because it waits for another device. It stays enqueued. A call that waits for it on
// the host would never return on a GPU; here it is a fault with this text.
struct StillWaits : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace halfmark::kernels::software_gpu
