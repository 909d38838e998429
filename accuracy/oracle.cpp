// Computes fp64 references and caches the last few.
#include "accuracy/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <span>
#include <utility>

#include "models/policy.h"

namespace halfmark::accuracy {

namespace {

// Subjects run one after another. Each needs one reference per input format and loss scale: drawn, fp32, fp16, bf16,
// drawn and fp16 with a loss scale.
constexpr size_t kKept = 8;

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}

Reference run_reference(const TrialSpec& spec) {
  const LogPause pause;
  Trial trial(spec);
  Reference reference;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) { reference.exponents[name].add(tensor.values()); });
  trial.load_batch(0);
  reference.input_norm = norm(trial.input().values());
  reference.output = trial.forward().values();
  reference.loss = trial.loss();
  trial.backward();
  reference.input_gradient = trial.input_gradient();
  for (const Param* param : trial.params()) {
    reference.gradients[param->name] = trial.gradient(*param);
    reference.param_norms[param->name] = norm(param->value.values());
    reference.param_shapes[param->name] = param->value.shape();
  }
  return reference;
}

double rms_of(const std::vector<double>& values) {
  return values.empty() ? 0 : norm(values) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace

void begin_scaling(Trial& trial) {
  if (!models::has_delayed_scaling(*trial.spec().policy)) return;
  const LogPause pause;
  trial.load_batch(1);
  trial.forward();
  trial.backward();
}

std::map<std::string, double> cancelled_gradients(const Reference& reference) {
  std::map<std::string, double> sizes = {{"gradient/input", rms_of(reference.input_gradient)}};
  for (const auto& [name, gradient] : reference.gradients) sizes["gradient/" + name] = rms_of(gradient);
  double largest = 0;
  for (const auto& [at, size] : sizes) largest = std::max(largest, size);
  std::erase_if(sizes, [&](const auto& size) { return size.second == 0 || size.second >= std::ldexp(largest, -44); });
  for (auto& size : sizes) size.second /= largest;
  return sizes;
}

std::string text_of(const Settings& s) {
  std::string text = fmt::format("{} {} {} {} {} {} {}", s.rate, s.momentum, s.weight_decay, s.loss_factor,
                                 s.input_scale, s.input_offset, s.batchnorm_momentum);
  if (s.batchnorm_state) text += fmt::format(" state {}", name_of(*s.batchnorm_state));
  if (s.batchnorm_accumulate) text += fmt::format(" sums {}", name_of(*s.batchnorm_accumulate));
  if (s.scaler) {
    const ScalerSpec& c = *s.scaler;
    text += fmt::format(" scaler {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(c.kind), c.initial, c.growth,
                        c.backoff, c.interval, c.uncounted, c.hysteresis, static_cast<int>(c.restored), c.floor, c.cap,
                        c.stops_at_floor, c.grows_to_infinity, c.held_in_double);
  }
  if (const OptimizerSpec& o = s.optimizer; !(o == OptimizerSpec{}))
    text += fmt::format(" optimizer {} {} {} {} {} {} {} {} {}", static_cast<int>(o.kind), o.dampening, o.nesterov,
                        o.beta1, o.beta2, o.epsilon.value_or(-1), static_cast<int>(o.storage),
                        static_cast<int>(o.rounding), o.clip_norm);
  return text;
}

std::string text_of_data(const TrialSpec& spec) { return spec.data ? spec.data->facts().hash : ""; }

std::shared_ptr<const Reference> reference_of(const TrialSpec& spec, Inputs inputs) {
  static std::list<std::pair<std::string, std::shared_ptr<const Reference>>> kept;  // latest first
  const TrialSpec spec_fp64 = spec.oracle(inputs);
  const std::string key =
      fmt::format("{} {} {} {} {}", spec.subject->id(), spec.seed, text_of_data(spec),
                  spec_fp64.round_first ? spec_fp64.round_first->name : "drawn", text_of(spec_fp64.settings));
  for (auto entry = kept.begin(); entry != kept.end(); ++entry) {
    if (entry->first != key) continue;
    kept.splice(kept.begin(), kept, entry);
    return entry->second;
  }
  auto reference = std::make_shared<const Reference>(run_reference(spec_fp64));
  kept.emplace_front(key, reference);
  if (kept.size() > kKept) kept.pop_back();
  return reference;
}

}  // namespace halfmark::accuracy
