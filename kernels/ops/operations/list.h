// Operations on lists of tensors: how they show their tensors to a visitor.
#pragma once

#include <cstdint>

namespace halfmark::kernels {

// show(item) shows the tensors of one item. The number of items is part of the signature. A visitor that has next()
// learns where an item ends.
void visit_list(auto& visitor, const auto& items, auto show) {
  visitor.attribute(static_cast<int64_t>(items.size()));
  for (auto& item : items) {
    show(item);
    if constexpr (requires { visitor.next(); }) visitor.next();
  }
}

}  // namespace halfmark::kernels
