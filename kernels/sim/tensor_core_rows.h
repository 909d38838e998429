// The rows of a simulated device that run on its tensor core; the reference rows run what these refuse.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// Matmul and the three convolutions. The device must be a SimDevice.
void add_tensor_core_rows(KernelTable& table);
void add_fp64_rows(KernelTable& table);  // the same in fp64, if the architecture has fp64 instructions

}  // namespace halfmark::kernels
