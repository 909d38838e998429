#include "kernels/ops/operations/training.h"

#include <string>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_updated(std::string_view name, const UpdatedTensors& t, Storage storage, StepRounding rounding) {
  check_same_shape(name, t.parameter, t.gradient);
  for (const Tensor* each : {&t.first, &t.second, &t.compensation, &t.low})
    if (!each->empty()) check_same_shape(name, t.parameter, *each);
  need((storage == Storage::kahan) == !t.compensation.empty(), name,
       "a compensation is needed for compensated storage and for no other");
  need(storage == Storage::nearest || rounding == StepRounding::once, name,
       "a step that rounds after each operation stores to nearest");
}

void check_flag(std::string_view name, const Tensor& found_inf) {
  vector_of(name, "found_inf", found_inf, 1);
  need(found_inf.dtype() == DType::f32, name, "found_inf must be f32, not " + std::string(name_of(found_inf.dtype())));
}

// A step that may be skipped leaves what its tensors hold.
void check_step_flag(std::string_view name, const Tensor& found_inf, std::span<const UpdatedTensors> tensors) {
  if (found_inf.empty()) return;
  check_flag(name, found_inf);
  for (const UpdatedTensors& t : tensors)
    need(t.low.empty() || t.low.layout() != Layout::any, name, "with found_inf, low must hold values");
}

}  // namespace

void CastTensors::check() const {
  for (const CastPair& pair : pairs) {
    check_same_shape(name, pair.x, pair.out);
    need(is_floating(pair.x.dtype()) && is_floating(pair.out.dtype()), name, "both sides must be floating point");
  }
}

void Unscale::check() const { check_flag(name, found_inf); }

void GradientNorm::check() const { vector_of(name, "norm", norm, 1); }

void ClipGradients::check() const { vector_of(name, "norm", norm, 1); }

void SgdStep::check() const {
  for (const UpdatedTensors& t : tensors) {
    check_updated(name, t, storage, rounding);
    need(momentum == 0 || !t.first.empty(), name, "momentum needs a velocity");
    need(t.second.empty(), name, "there is no second moment");
  }
  check_step_flag(name, found_inf, tensors);
}

void AdamStep::check() const {
  for (const UpdatedTensors& t : tensors) {
    check_updated(name, t, storage, rounding);
    need(!t.first.empty() && !t.second.empty(), name, "two moments are needed");
  }
  check_step_flag(name, found_inf, tensors);
  need(step > 0, name, "steps count from 1");
  need(kind != AdamKind::keras || rounding == StepRounding::once, name,
       "rounding after each operation is defined for PyTorch's steps only");
}

}  // namespace halfmark::kernels
