// The row of DotProducts on a simulated device.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark {

void add_dot_rows(KernelTable& table);  // the device must be a SimDevice

}  // namespace halfmark
