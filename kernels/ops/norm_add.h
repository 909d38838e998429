// The rows "separate" of NormalizeRowsBackwardAdd, for every device: its own norm and its own addition.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// After the rows of NormalizeRowsBackward and Add.
void add_norm_add_rows(KernelTable& table);
void run_separately(const NormalizeRowsBackwardAdd& op);

}  // namespace halfmark::kernels
