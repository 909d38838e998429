// What the kernels of an operation execute and access, as the software GPU counts it (HALFMARK_SOFTWARE_GPU_WORK).
#pragma once

#include <functional>
#include <optional>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench::micro {

struct KernelWork {
  double instructions = 0;     // of PTX, of warps
  double requested_bytes = 0;  // of the sectors that accesses of warps touch: what caches deliver
  double touched_bytes = 0;    // of the sectors that a kernel touches at all: the least that memory must move
};

// Nothing if the variable is not set. Throws Error if the file cannot be read or `work` started no kernel.
std::optional<KernelWork> kernel_work(Device& device, const std::function<void()>& work);

}  // namespace halfmark::bench::micro
