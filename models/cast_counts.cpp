#include "models/cast_counts.h"

#include <algorithm>
#include <array>

#include "kernels/number/error.h"
#include "kernels/tensor/memory.h"

namespace halfmark::models {

std::string_view name_of(CastOf kind) {
  switch (kind) {
    case CastOf::weight:
      return "weights";
    case CastOf::activation:
      return "activations";
    case CastOf::gradient:
      return "gradients";
    case CastOf::weight_gradient:
      return "weight_gradients";
  }
  throw Error("unknown kind of cast");
}

void CastCounts::cast(CastOf kind, const Tensor& x, Tensor& out) {
  Counted& counted = counted_[{kind, x.dtype(), out.dtype()}];
  const PurposeScope purpose(Purpose::workspace);
  if (counted.events.empty())
    counted.events =
        Tensor::from(x.device(), {CountedCast::kEvents}, DType::f64, std::array<double, CountedCast::kEvents>{});
  counted.values += static_cast<double>(x.elements());
  if (x.layout() == Layout::plain || x.layout() == Layout::nhwc)
    return run(CountedCast{.x = x, .out = out, .events = counted.events});
  // A library's layout stays, so that the same operations follow as without counts.
  run(Cast{.x = x, .out = out});
  Tensor plain(x.device(), x.shape(), x.dtype()), unused(x.device(), x.shape(), out.dtype());
  run(Reorder{.x = x, .out = plain});
  run(CountedCast{.x = plain, .out = unused, .events = counted.events});
}

std::vector<CastCounts::Row> CastCounts::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, counted] : counted_) {
    const auto& [kind, from, to] = key;
    const std::vector<double> events = counted.events.values();
    rows.push_back({kind, from, to, counted.values, events[0], events[1], events[2], events[3]});
  }
  return rows;
}

}  // namespace halfmark::models
