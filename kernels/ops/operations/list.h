// How operations show lists of tensors, and tensors that they update in place, to a visitor.
#pragma once

#include <cstdint>
#include <string_view>

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

// A tensor that the operation reads and writes. A visitor that has no updated() sees an output.
void visit_updated(auto& visitor, std::string_view name, auto& tensor) {
  if constexpr (requires { visitor.updated(name, tensor); })
    visitor.updated(name, tensor);
  else
    visitor.output(name, tensor);
}

}  // namespace halfmark::kernels
