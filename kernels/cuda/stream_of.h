// The stream of a device, for objects that use it and are destroyed before the device.
#pragma once

#include <functional>

#include "kernels/cuda/cuda.h"

namespace halfmark::kernels::cuda {

struct StreamOf {
  cudaStream_t stream;
  std::function<void()> activate;  // throws Error if the device is lost
  std::function<bool()> is_lost;
};

}  // namespace halfmark::kernels::cuda
