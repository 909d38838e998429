// The processor that OpenBLAS takes its kernels for.
#pragma once

#include <string_view>

namespace halfmark::kernels {

// OpenBLAS knows processors by their model numbers, and takes kernels for SSE3 ("Prescott") on a model that is newer than it
// is: on Emerald Rapids, 0.3.21 of Debian 12 did products in fp64 with them. The environment variable OPENBLAS_CORETYPE,
// which it reads before main, names another processor.

// The name to set, by the instructions that this processor has. Empty if the choice of OpenBLAS is right.
std::string_view better_blas_core();

// The same, where OpenBLAS chose kernels for `chosen` (openblas_get_corename).
std::string_view better_blas_core(std::string_view chosen, bool has_avx2_and_fma, bool has_avx512);

}  // namespace halfmark::kernels
