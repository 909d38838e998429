// Reference rows of the optimizers' steps: fp32 (fp64 for f64), one rounding after each operation of formulas::, and one
// when a result is stored. The new parameter is computed from the new state before that is stored.
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/number/convert.h"
#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::reference {
namespace {

template <class T>
struct RoundToFormat {
  const Format& format;
  T operator()(T x) const { return static_cast<T>(round_to(format, static_cast<double>(x))); }
};

// The values as they will be stored.
template <class T>
void round_all(const Tensor& target, std::vector<T>& values) {
  for (T& value : values) value = static_cast<T>(round_to(format_of(target.dtype()), static_cast<double>(value)));
}

template <class T>
void write_stochastic(Tensor& target, const std::vector<T>& values, NoiseStream noise) {
  const DType from = sizeof(T) == 8 ? DType::f64 : DType::f32;
  std::vector<unsigned char> codes(bytes_for(target.dtype(), values.size()));
  convert(from, values.data(), target.dtype(), codes.data(), values.size(), Rounding::stochastic, noise);
  write_codes(target, codes);
}

template <class T>
std::vector<T> read_or_zeros(const Tensor& tensor, int64_t count) {
  return tensor.empty() ? std::vector<T>(static_cast<size_t>(count)) : read<T>(tensor);
}

// rule(parameter, gradient, first, second, round) gives the UpdateStep of one element.
template <class T, class Rule>
void update(UpdatedTensors& t, Storage storage, StepRounding rounding, NoiseStream noise, Rule rule) {
  const int64_t count = t.parameter.elements();
  std::vector<T> parameter = read<T>(t.parameter);
  const std::vector<T> gradient = read<T>(t.gradient);
  std::vector<T> first = read_or_zeros<T>(t.first, count), second = read_or_zeros<T>(t.second, count),
                 lacking = read_or_zeros<T>(t.compensation, count);
  const std::vector<T> before = parameter;
  const RoundToFormat<T> to_parameter{format_of(t.parameter.dtype())};
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const formulas::UpdateStep<T> step = rounding == StepRounding::once
                                               ? rule(before[i], gradient[i], first[i], second[i], formulas::KeepWide{})
                                               : rule(before[i], gradient[i], first[i], second[i], to_parameter);
      first[i] = step.first, second[i] = step.second;
      if (storage == Storage::kahan) {
        // Without decay of the parameter, kept is the parameter; its difference would be NaN if it is infinite.
        const T decayed = step.kept == before[i] ? T(0) : step.kept - before[i];
        lacking[i] += decayed - step.change;
        parameter[i] = before[i] + lacking[i];
      } else {
        parameter[i] = step.kept - step.change;
      }
    }
  });
  if (storage == Storage::kahan) {
    round_all(t.parameter, parameter);
    for (size_t i = 0; i < parameter.size(); ++i) lacking[i] += before[i] - parameter[i];
    write(t.compensation, lacking);
  }
  storage == Storage::stochastic ? write_stochastic(t.parameter, parameter, noise) : write(t.parameter, parameter);
  if (!t.first.empty()) write(t.first, first);
  if (!t.second.empty()) write(t.second, second);
  if (t.low.empty()) return;
  settle(t.low, t.parameter);
  write(t.low, read<T>(t.parameter));
}

// f.operator()<T>(tensors, noise) for each parameter in its arithmetic.
template <class Op, class F>
void each_updated(const Op& op, F f) {
  if (is_skipped(op.found_inf)) return;
  NoiseStream noise{op.noise, 0};
  for (UpdatedTensors& t : op.tensors) {
    wants_fp64(t.parameter) || wants_fp64(t.gradient) ? f.template operator()<double>(t, noise)
                                                      : f.template operator()<float>(t, noise);
    noise = noise.from(static_cast<uint64_t>(t.parameter.elements()));
  }
}

void sgd_step(Device&, const SgdStep& op) {
  each_updated(op, [&]<class T>(UpdatedTensors& t, NoiseStream noise) {
    const auto c =
        formulas::sgd_constants<T>(op.rate, op.momentum, op.dampening, op.weight_decay, op.nesterov, op.first);
    update<T>(t, op.storage, op.rounding, noise, [&](T p, T g, T v, T, auto round) {
      return formulas::sgd_step(p, g, v, c, c.momentum != 0, c.weight_decay != 0, round);
    });
  });
}

template <AdamKind kind>
void adam_step_of(const AdamStep& op) {
  each_updated(op, [&]<class T>(UpdatedTensors& t, NoiseStream noise) {
    const auto c = formulas::adam_constants<T>(kind, op.rate, op.beta1, op.beta2, op.epsilon, op.weight_decay, op.step);
    update<T>(t, op.storage, op.rounding, noise, [&](T p, T g, T m, T v, auto round) {
      return formulas::adam_step<kind>(p, g, m, v, c, c.weight_decay != 0, round);
    });
  });
}

void adam_step(Device&, const AdamStep& op) {
  if (op.kind == AdamKind::adam) return adam_step_of<AdamKind::adam>(op);
  if (op.kind == AdamKind::adamw) return adam_step_of<AdamKind::adamw>(op);
  adam_step_of<AdamKind::keras>(op);
}

}  // namespace

void add_optimizer_rows(KernelTable& table) { add_row<SgdStep>(table, sgd_step), add_row<AdamStep>(table, adam_step); }

}  // namespace halfmark::kernels::reference
