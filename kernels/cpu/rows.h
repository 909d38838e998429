// The functions that add each family of host kernels to the CPU's table, declared
// in one place. The order of the calls is the order of choice: oneDNN, fp64 BLAS,
// host loops, upcast rows, and last the reference rows, which support everything.
#pragma once

#include <string>

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

void add_onednn_rows(KernelTable& table);
void add_blas_rows(KernelTable& table);
void add_host_rows(KernelTable& table);
void add_upcast_rows(KernelTable& table);
void add_half_fma_rows(KernelTable& table);
// Products with bias and activation: the device's own product, then host loops. After the rows of products.
void add_fused_rows(KernelTable& table);
void add_fused_convolution_rows(KernelTable& table);  // likewise convolutions with bias and ReLU
void add_fused_norm_rows(KernelTable& table);         // likewise batch norm with ReLU, after the rows of batch norm

// The slow, exact rows: any dtype, any Math. The last rows of every host device.
void add_reference_rows(KernelTable& table);

std::string openblas_version();  // with its build options and the processor that it chose kernels for

}  // namespace halfmark::kernels
