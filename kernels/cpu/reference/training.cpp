// Reference rows of unscaling and of the optimizer step: fp32 (fp64 for f64), one rounding after each operation and one
// when a result is stored. The new parameter is computed from the new velocity before that is stored.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::reference {
namespace {

void unscale(Device&, const Unscale& op) {
  bool found = false;
  const auto apply = [&](auto values) {
    using T = typename decltype(values)::value_type;
    for (T& value : values) {
      found = found || formulas::overflowed(value);
      value = formulas::unscale(value, static_cast<T>(op.inverse_scale));
    }
    write(op.gradient, values);
  };
  wants_fp64(op.gradient) ? apply(read<double>(op.gradient)) : apply(read<float>(op.gradient));
  if (found) write(op.found_inf, std::vector<double>{1});
}

template <class T>
void step(const SgdStep& op) {
  std::vector<T> parameter = read<T>(op.parameter);
  const std::vector<T> gradient = read<T>(op.gradient);
  std::vector<T> velocity = op.velocity.empty() ? std::vector<T>() : read<T>(op.velocity);
  const auto rate = static_cast<T>(op.rate), momentum = static_cast<T>(op.momentum),
             decay = static_cast<T>(op.weight_decay);
  parallel_for(op.parameter.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto next =
          formulas::sgd_step(parameter[i], gradient[i], velocity.empty() ? T(0) : velocity[i], rate, momentum, decay);
      if (!velocity.empty()) velocity[i] = next.velocity;
      parameter[i] = next.parameter;
    }
  });
  write(op.parameter, parameter);
  if (!velocity.empty()) write(op.velocity, velocity);
  if (op.low.empty()) return;
  settle(op.low, op.parameter);
  write(op.low, read<T>(op.parameter));
}

void sgd_step(Device&, const SgdStep& op) { wants_fp64(op.parameter) ? step<double>(op) : step<float>(op); }

}  // namespace

void add_training_rows(KernelTable& table) { add_row<Unscale>(table, unscale), add_row<SgdStep>(table, sgd_step); }

}  // namespace halfmark::kernels::reference
