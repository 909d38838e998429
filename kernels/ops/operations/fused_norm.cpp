#include "kernels/ops/operations/fused_norm.h"

#include <cstdint>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

using namespace operation_checks;

void FusedBatchNorm::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, out);
  if (!addend.empty()) check_same_shape(name, x, addend);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "shift", shift, c), vector_of(name, "mean", mean, c);
  vector_of(name, "variance", variance, c), vector_of(name, "running_mean", running_mean, c);
  vector_of(name, "running_variance", running_variance, c);
  need(x.elements() > c, name, "training needs more than one value per channel: " + x.shape().text());
}

void FusedBatchNormBackward::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, dy), check_same_shape(name, x, kept), check_same_shape(name, x, dx);
  if (!daddend.empty()) check_same_shape(name, x, daddend);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "mean", mean, c), vector_of(name, "variance", variance, c);
  vector_of(name, "dscale", dscale, c), vector_of(name, "dshift", dshift, c);
}

}  // namespace halfmark::kernels
