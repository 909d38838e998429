// The paths of the reference contraction. All give the same bits; the fast ones are used only where that is proven.
#pragma once

#include "kernels/cpu/contraction.h"

namespace halfmark::kernels::reference {

enum class Path {
  generic,       // products exact in fp64, sums rounded to odd and then once: any format
  fma,           // fp32 accumulation of fp32 operands: the hardware's fused multiply-add is the definition
  multiply_add,  // the same without such hardware, where the products are exact in fp32
  fma64,         // fp64 accumulation
};

Path fastest_path(const Contraction& work);
bool products_exact_in_float(const Contraction& work);
// `work.out` must have memory.
void contract(const Contraction& work, Path path);

}  // namespace halfmark::kernels::reference
