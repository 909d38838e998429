// Reference rows of unscaling and of clipping: fp32 (fp64 for f64), one rounding when a result is stored. The norm is
// summed in fp64.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::reference {
namespace {

void unscale(Device&, const Unscale& op) {
  bool found = false;
  const auto apply = [&](Tensor& gradient, auto values) {
    using T = typename decltype(values)::value_type;
    for (T& value : values) {
      found = found || formulas::overflowed(value);
      value = formulas::unscale(value, static_cast<T>(op.inverse_scale));
    }
    write(gradient, values);
  };
  for (Tensor& gradient : op.gradients)
    wants_fp64(gradient) ? apply(gradient, read<double>(gradient)) : apply(gradient, read<float>(gradient));
  if (found) write(op.found_inf, std::vector<double>{1});
}

void gradient_norm(Device&, const GradientNorm& op) {
  double sum = 0;
  for (const Tensor& gradient : op.gradients)
    for (const double value : read<double>(gradient)) sum += value * value;
  settle(op.norm, op.norm);
  write(op.norm, std::vector<double>{std::sqrt(sum)});
}

void clip_gradients(Device&, const ClipGradients& op) {
  const double norm = read<double>(op.norm)[0];
  const auto apply = [&](Tensor& gradient, auto values) {
    using T = typename decltype(values)::value_type;
    const T factor = formulas::clip_factor(static_cast<T>(norm), static_cast<T>(op.limit));
    for (T& value : values) value *= factor;
    write(gradient, values);
  };
  for (Tensor& gradient : op.gradients)
    wants_fp64(gradient) ? apply(gradient, read<double>(gradient)) : apply(gradient, read<float>(gradient));
}

}  // namespace

void add_training_rows(KernelTable& table) {
  add_row<Unscale>(table, unscale);
  add_row<GradientNorm>(table, gradient_norm), add_row<ClipGradients>(table, clip_gradients);
}

}  // namespace halfmark::kernels::reference
