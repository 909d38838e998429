// The processor that OpenBLAS takes its kernels for.
#pragma once

#include <string_view>

namespace halfmark::kernels {

// OpenBLAS knows processors by their model numbers. On a model that it does not know it uses kernels for SSE3 ("Prescott"), as
// version 0.3.21 of Debian 12 does on Emerald Rapids (family 6, model 207). The environment variable OPENBLAS_CORETYPE, which it
// reads before main, names another processor.

// The name to set, by the instructions that this processor has. Empty if OpenBLAS did not fall back.
std::string_view better_blas_core();

// The same, where OpenBLAS chose kernels for `chosen` (openblas_get_corename).
std::string_view better_blas_core(std::string_view chosen, bool has_avx2_and_fma, bool has_avx512);

}  // namespace halfmark::kernels
