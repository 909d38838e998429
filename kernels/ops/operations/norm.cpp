#include "kernels/ops/operations/norm.h"

#include <algorithm>
#include <string>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

// Each row uses a sequence of entries of scale and shift.
void check_rows(std::string_view operation, const Tensor& x, int64_t width, int64_t repeat, int64_t entries) {
  need(width > 0 && x.elements() % width == 0, operation,
       "rows of " + std::to_string(width) + " values do not divide x " + x.shape().text());
  need(repeat > 0 && width % repeat == 0 && entries % (width / repeat) == 0, operation,
       "rows of " + std::to_string(width) + " values, " + std::to_string(repeat) + " of an entry, do not divide " +
           std::to_string(entries) + " entries of scale");
  need(entries > 0 && x.elements() % (entries * repeat) == 0, operation,
       std::to_string(entries) + " entries of scale, " + std::to_string(repeat) + " values of each, do not divide x " +
           x.shape().text());
}

}  // namespace

void BatchNorm::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, out);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "shift", shift, c), vector_of(name, "mean", mean, c);
  vector_of(name, "variance", variance, c), vector_of(name, "running_mean", running_mean, c);
  vector_of(name, "running_variance", running_variance, c);
  need(x.elements() > c, name, "training needs more than one value per channel: " + x.shape().text());
}

void BatchNormInference::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, out);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "shift", shift, c);
  vector_of(name, "running_mean", running_mean, c), vector_of(name, "running_variance", running_variance, c);
}

void BatchNormInferenceBackward::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, dy), check_same_shape(name, x, dx);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "running_mean", running_mean, c);
  vector_of(name, "running_variance", running_variance, c);
  vector_of(name, "dscale", dscale, c), vector_of(name, "dshift", dshift, c);
}

void BatchNormBackward::check() const {
  rank(name, "x", x, 4), check_same_shape(name, x, dy), check_same_shape(name, x, dx);
  const int64_t c = x.shape()[1];
  vector_of(name, "scale", scale, c), vector_of(name, "mean", mean, c), vector_of(name, "variance", variance, c);
  vector_of(name, "dscale", dscale, c), vector_of(name, "dshift", dshift, c);
}

void NormalizeRows::check() const {
  check_same_shape(name, x, out);
  const int64_t entries = scale.empty() ? width / std::max<int64_t>(repeat, 1) : scale.elements();
  check_rows(name, x, width, repeat, entries);
  need(!(centred && summed), name, "sums in place of means are for rows that are not centred");
  if (!scale.empty()) vector_of(name, "scale", scale, entries);
  if (!shift.empty()) vector_of(name, "shift", shift, entries);
  if (centred) vector_of(name, "mean", mean, x.elements() / width);
  vector_of(name, "inverse", inverse, x.elements() / width);
}

void AddNormalizeRows::check() const {
  add().check();
  need(sum.dtype() == a.dtype() || sum.dtype() == b.dtype(), name, "sum has the dtype of a or of b");
  norm(sum).check();
}

void NormalizeRowsBackward::check() const {
  check_same_shape(name, x, dy), check_same_shape(name, x, dx);
  const Tensor& any = !scale.empty() ? scale : !dscale.empty() ? dscale : dshift;
  const int64_t entries = any.empty() ? width / std::max<int64_t>(repeat, 1) : any.elements();
  check_rows(name, x, width, repeat, entries);
  need(!(centred && summed), name, "sums in place of means are for rows that are not centred");
  if (!scale.empty()) vector_of(name, "scale", scale, entries);
  if (!dscale.empty()) vector_of(name, "dscale", dscale, entries);
  if (!dshift.empty()) vector_of(name, "dshift", dshift, entries);
  if (centred) vector_of(name, "mean", mean, x.elements() / width);
  vector_of(name, "inverse", inverse, x.elements() / width);
}

void NormalizeRowsBackwardAdd::check() const {
  for (const Tensor* one : {&x, &addend, static_cast<const Tensor*>(&out)})
    need(one->shape() == x.shape() && one->dtype() == x.dtype(), name, "x, addend and out are of one shape and dtype");
  check_same_shape(name, x, dy);
  norm(out).check();
}

}  // namespace halfmark::kernels
