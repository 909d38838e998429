// Arithmetic on f16, bf16 and pairs of them: each operation rounds once, to nearest even. A NaN result is 7fff.
#pragma once

#include <cstdint>

#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

enum class NarrowOperation : uint8_t { add, sub, mul, fma, fma_relu, min, max, min_nan, max_nan, neg, abs };

Handler narrow_handler(PtxType type, NarrowOperation operation);  // null unless f16, bf16, f16x2 or bf16x2

}  // namespace halfmark::kernels::software_gpu
