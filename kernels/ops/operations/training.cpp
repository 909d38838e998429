#include "kernels/ops/operations/training.h"

#include <string>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

using namespace operation_checks;

void Unscale::check() const { vector_of(name, "found_inf", found_inf, 1); }

void SgdStep::check() const {
  check_same_shape(name, parameter, gradient);
  if (!velocity.empty()) check_same_shape(name, parameter, velocity);
  if (!low.empty()) check_same_shape(name, parameter, low);
  need(momentum == 0 || !velocity.empty(), name, "momentum needs a velocity");
}

}  // namespace halfmark::kernels
