// The rows "separate" of PackedAttention and its backward, for every device: the heads of q, k and v are copied apart, the
// device's own Attention runs on the copies, and its results are copied to their places.
#pragma once

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// After the rows of Attention and Permute.
void add_packed_attention_rows(KernelTable& table);

// Axes of [n, t, 3, heads, d] as [3, n, heads, t, d], and of [n, t, heads, d] as [n, heads, t, d].
inline constexpr AxisOrder kPartsFirst{{2, 0, 3, 1, 4}, 5}, kHeadsFirst{{0, 2, 1, 3}, 4};

}  // namespace halfmark::kernels
