// The rows of dot products and of matmul with block scales on a simulated device.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// The device must be a SimDevice.
void add_dot_rows(KernelTable& table);
void add_scaled_rows(KernelTable& table);

}  // namespace halfmark::kernels
