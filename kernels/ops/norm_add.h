// The rows "separate" of AddNormalizeRows and NormalizeRowsBackwardAdd, for every device: its own norm and its own addition.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// After the rows of NormalizeRows, NormalizeRowsBackward and Add.
void add_norm_add_rows(KernelTable& table);
void run_separately(const AddNormalizeRows& op);
void run_separately(const NormalizeRowsBackwardAdd& op);

}  // namespace halfmark::kernels
