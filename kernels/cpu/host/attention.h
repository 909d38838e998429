// Shared by the two files of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::host {

struct HeadSizes {
  int64_t count, t, s, d;
  bool causal;
  HeadSizes(const Tensor& q, const Tensor& k, bool is_causal)
      : count(q.shape()[0] * q.shape()[1]), t(q.shape()[2]), s(k.shape()[2]), d(q.shape()[3]), causal(is_causal) {}
  int64_t seen(int64_t i) const { return causal ? std::min(s, i + 1) : s; }
};

// What a mask adds to the scores of a query; null where it adds nothing.
template <class T>
class AddedMask {
 public:
  AddedMask(const Tensor& mask, int64_t rows) {
    if (mask.empty()) return;
    if (mask.dtype() == DType::u8) {
      const auto* codes = static_cast<const uint8_t*>(mask.data());
      for (int64_t i = 0; i < mask.elements(); ++i) values_.push_back(codes[i] ? T(0) : -static_cast<T>(HUGE_VAL));
    } else {
      values_ = widened<T>(mask);
    }
    share_ = rows / mask.shape()[0], t_ = mask.shape()[1], s_ = mask.shape()[2];
  }
  const T* of(int64_t row, int64_t i) const {
    return values_.empty() ? nullptr : values_.data() + (row / share_ * t_ + (t_ == 1 ? 0 : i)) * s_;
  }

 private:
  std::vector<T> values_;
  int64_t share_ = 1, t_ = 1, s_ = 0;  // rows that have an entry of the first axis in common
};

// Without a branch in the loop: a mask is rare.
template <class T>
void add_mask(T* scores, const T* mask, int64_t count) {
  if (!mask) return;
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j) scores[j] += mask[j];
}

void attend_in_tiles(const Attention& op);
void attend_backward_in_tiles(const AttentionBackward& op);

}  // namespace halfmark::kernels::host
