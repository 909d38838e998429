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

}  // namespace halfmark::kernels::software_gpu
