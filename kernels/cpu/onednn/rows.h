// The families of oneDNN rows.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels::onednn {

void add_contractions(KernelTable& table);  // matmul, the convolutions
void add_batch_norms(KernelTable& table);
void add_elementwise(KernelTable& table);  // add, reorder
void add_poolings(KernelTable& table);

}  // namespace halfmark::kernels::onednn
