#include "kernels/ops/operations/elementwise.h"

#include <string>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

void AddBias::check() const {
  check_same_shape(name, x, out);
  need(x.shape().rank() == 2 || x.shape().rank() == 4, name, "x must have rank 2 or 4, not shape " + x.shape().text());
  vector_of(name, "bias", bias, x.shape()[1]);
}

void BiasGradient::check() const {
  need(dy.shape().rank() == 2 || dy.shape().rank() == 4, name,
       "dy must have rank 2 or 4, not shape " + dy.shape().text());
  vector_of(name, "dbias", dbias, dy.shape()[1]);
}

void Scale::check() const { check_same_shape(name, x, out); }
void Add::check() const { check_same_shape(name, a, b), check_same_shape(name, a, out); }

void Cast::check() const {
  check_same_shape(name, x, out);
  need(is_floating(x.dtype()) && is_floating(out.dtype()), name, "both sides must be floating point");
}

void CountedCast::check() const {
  check_same_shape(name, x, out);
  need(is_floating(x.dtype()) && is_floating(out.dtype()), name, "both sides must be floating point");
  need(events.shape() == Shape{kEvents} && events.dtype() == DType::f64, name, "events are 4 numbers of f64");
}

void Reorder::check() const {
  check_same_shape(name, x, out);
  need(x.dtype() == out.dtype(), name, "a reorder must keep the dtype");
}

}  // namespace halfmark::kernels
