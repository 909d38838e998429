// Shared by the two files of attention.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ops/ops.h"

namespace halfmark::kernels::host {

struct HeadSizes {
  int64_t count, t, s, d;
  bool causal;
  HeadSizes(const Tensor& q, const Tensor& k, bool is_causal)
      : count(q.shape()[0] * q.shape()[1]), t(q.shape()[2]), s(k.shape()[2]), d(q.shape()[3]), causal(is_causal) {}
  int64_t seen(int64_t i) const { return causal ? std::min(s, i + 1) : s; }
};

void attend_in_tiles(const Attention& op);
void attend_backward_in_tiles(const AttentionBackward& op);

}  // namespace halfmark::kernels::host
