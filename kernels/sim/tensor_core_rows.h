// The rows of a simulated device that run on its tensor core; what they refuse falls to the reference rows.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// Matmul and the three convolutions. The device must be a SimDevice.
void add_tensor_core_rows(KernelTable& table);
void add_fp64_rows(KernelTable& table);  // the same in fp64, where the architecture has fp64 instructions

}  // namespace halfmark::kernels
