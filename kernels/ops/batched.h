// The row "per-matrix" of BatchedMatmul, for every device: its own Matmul for each matrix, with all that is known of it.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

void add_batched_rows(KernelTable& table);

}  // namespace halfmark::kernels
