// Pass (where casts happen), Saved (tensors kept for backward) and Init (initial parameter values).
#include "models/layer.h"

#include <cmath>
#include <utility>

#include "kernels/number/error.h"
#include "models/draw.h"

namespace halfmark::models {

Pass::Pass(Device& d, const Policy& p, bool train, RandomKey k, Tap t)
    : device(d), training(train), key(k), tap(std::move(t)), policy_(&p) {}

DType wider(DType a, DType b) {
  if (a == b) return a;
  if (bits_of(a) != bits_of(b)) return bits_of(a) > bits_of(b) ? a : b;
  return DType::f32;
}

// No rule changes f64, as in autocast.
DType Pass::wanted(std::string_view operation, DType input) const {
  if (!policy_->rules || input == DType::f64) return input;
  switch (policy_->rules->of(operation)) {
    case CastRule::lower:
      return policy_->low;
    case CastRule::fp32:
      return DType::f32;
    case CastRule::refused:
      throw Unsupported(std::string(operation) + " is not allowed by the cast rules " +
                        std::string(policy_->rules->name));
    case CastRule::fp32_out:  // inputs as they are
    case CastRule::widest:    // of one operand
    case CastRule::as_is:
      return input;
  }
  return input;
}

Tensor Pass::entering(const Tensor& x) const {
  return policy_->rules || !is_floating(x.dtype()) ? x : cast(x, policy_->low);
}

Tensor Pass::layer_input(const Tensor& x) const {
  const bool is_cast = casts_layer_inputs(*policy_) && is_floating(x.dtype()) && x.dtype() != DType::f64;
  return is_cast ? cast(x, policy_->low) : x;
}

Tensor Pass::input(std::string_view operation, const Tensor& x) { return cast(x, wanted(operation, x.dtype())); }

Tensor Pass::weight(std::string_view operation, const Param& param, bool shared) {
  // Without cast rules a layer computes in the dtype of its own parameters.
  const DType stored = shared && !policy_->rules ? policy_->param : param.value.dtype();
  const DType dtype = wanted(operation, stored);
  if (dtype == param.value.dtype()) return param.value;
  if (!caches_casts) {
    PurposeScope purpose(Purpose::casts);
    return cast_of(CastOf::weight, param.value, dtype);
  }
  KeptCast& kept = casts_[{param.value.id(), dtype}];
  if (!std::exchange(kept.is_asked_for, true) && is_cast_with_others(param.value))
    asked_for_.push_back({&param, dtype});
  if (kept.tensor.empty()) {
    PurposeScope purpose(Purpose::casts);
    kept.tensor = cast_of(CastOf::weight, param.value, dtype);
  }
  return kept.tensor;
}

void Pass::cast_ahead(const ParameterCasts& casts) {
  if (!fuses || !caches_casts || counts || casts.size() < 2) return;
  PurposeScope purpose(Purpose::casts);
  std::vector<kernels::CastPair> pairs;
  for (const ParameterCast& one : casts) {
    const Tensor& value = one.param->value;
    pairs.push_back({value, fresh(value.shape(), one.dtype)});
  }
  run(CastTensors{.pairs = pairs});
  for (size_t i = 0; i < casts.size(); ++i) casts_[{casts[i].param->value.id(), casts[i].dtype}].tensor = pairs[i].out;
}

DType Pass::output_dtype(std::string_view operation, DType input) const {
  const bool widens = policy_->rules && input != DType::f64 && policy_->rules->of(operation) == CastRule::fp32_out;
  return widens ? DType::f32 : input;
}

void Pass::gradient(Param& param, DType computed, const std::function<void(Tensor&)>& compute) {
  const bool first = param.grad.empty();
  if (first) {
    PurposeScope purpose(Purpose::gradients);
    param.grad = Tensor(device, param.value.shape(), wider(policy_->grad, param.value.dtype()));
  }
  const bool is_second = !delivered_.insert(&param).second;  // a weight that two layers share
  try {
    compute_gradient(param, computed, compute, first, !first && (accumulate || is_second));
  } catch (...) {
    if (first) param.grad = {};  // it has no values
    throw;
  }
  if (tap) look("gradient/" + param.name, param.grad);
}

void Pass::compute_gradient(Param& param, DType computed, const std::function<void(Tensor&)>& compute, bool is_new,
                            bool adds) {
  if (computed == param.grad.dtype() && !adds) return compute(param.grad);
  Tensor computed_gradient(device, param.value.shape(), computed);
  compute(computed_gradient);
  if (adds) {
    gradient_casts_.run_all();  // what it is added to may wait
    run(Add{.a = param.grad, .b = computed_gradient, .out = param.grad});
  } else if (fuses && !tap && !counts && is_cast_with_others(param.grad)) {
    gradient_casts_.add(computed_gradient, param.grad, is_new);
  } else {
    run_cast(CastOf::weight_gradient, computed_gradient, param.grad);
  }
}

Math Pass::math(DType operands) const {
  if (operands == policy_->low) return policy_->math;
  if (operands == DType::f64) return Math{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  return Math{};
}

Tensor Pass::fresh(const Shape& shape, DType dtype) const { return Tensor(device, shape, dtype, Layout::any); }

Tensor Pass::cast(const Tensor& x, DType dtype) const { return cast_of(casts_tensors, x, dtype); }

Tensor Pass::cast_of(CastOf kind, const Tensor& x, DType dtype) const {
  if (x.dtype() == dtype) return x;
  Tensor out = fresh(x.shape(), dtype);
  run_cast(kind, x, out);
  return out;
}

void Pass::run_cast(CastOf kind, const Tensor& x, Tensor& out) const {
  if (counts) return counts->cast(kind, x, out);
  run(Cast{.x = x, .out = out});
}

Tensor Pass::plain(const Tensor& x) const {
  if (x.layout() == Layout::plain) return x;
  // x stays beside the copy if something else keeps it: then the copy is what its layout adds.
  const bool is_extra = current_purpose() == Purpose::temporary && x.purpose() != Purpose::temporary;
  const PurposeScope purpose(is_extra ? Purpose::padding : current_purpose());
  Tensor out(device, x.shape(), x.dtype());
  run(Reorder{.x = x, .out = out});
  return out;
}

Tensor Pass::operand(const Tensor& x) const {
  const PurposeScope purpose(Purpose::workspace);
  return plain(x);
}

Tensor Pass::sum(const Tensor& a, const Tensor& b) const {
  const bool alike = a.layout() == b.layout() && a.layout() != Layout::opaque;
  const Tensor left = alike ? a : operand(a), right = alike ? b : operand(b);
  Tensor out = fresh(a.shape(), wider(a.dtype(), b.dtype()));
  run(Add{.a = left, .b = right, .out = out});
  return out;
}

void Pass::leave(const std::string& name, Tensor tensor) {
  HM_CHECK(waiting_.emplace(name, std::move(tensor)).second, "the result of " + name + " waits already for a join");
}

Tensor Pass::collect(const std::string& name) {
  const auto found = waiting_.find(name);
  HM_CHECK(found != waiting_.end(),
           "no result of " + name + " waits: a side branch and its join are in one checkpoint");
  Tensor tensor = std::move(found->second);
  waiting_.erase(found);
  return tensor;
}

void Saved::keep(Tensor tensor) {
  if (tensor.purpose() == Purpose::temporary) tensor.set_purpose(Purpose::saved);
  kept_.push_back({std::move(tensor), {}, {}});
}

void Saved::keep_spec(const Tensor& tensor) { keep_spec(TensorSpec{tensor.shape(), tensor.dtype()}); }
void Saved::keep_spec(TensorSpec form) { kept_.push_back({{}, form, {}}); }

Saved::Entry Saved::pop() {
  HM_CHECK(!kept_.empty(), "backward asks for more than forward kept");
  Entry entry = std::move(kept_.back());
  kept_.pop_back();
  return entry;
}

void Saved::keep_key(RandomKey key) { kept_.push_back({{}, {}, key}); }

RandomKey Saved::take_key() {
  const Entry entry = pop();
  HM_CHECK(entry.key, "backward asks for a key where forward kept something else");
  return *entry.key;
}

Tensor Saved::take() {
  Entry entry = pop();
  HM_CHECK(!entry.tensor.empty(), "backward asks for a tensor where forward kept a shape and dtype only");
  return std::move(entry.tensor);
}

TensorSpec Saved::take_spec() {
  const Entry entry = pop();
  HM_CHECK(entry.tensor.empty(), "backward asks for a shape and dtype where forward kept a tensor");
  return entry.form;
}

namespace {

Param without_values(const Init& init, std::string name, const Shape& shape, DType dtype) {
  return {std::move(name), Tensor(init.device, shape, dtype), {}, {}};
}

}  // namespace

Param Init::param(std::string name, const Shape& shape, DType dtype, std::span<const double> values) const {
  if (!draws) return without_values(*this, std::move(name), shape, dtype);
  std::vector<double> start(values.begin(), values.end());
  if (round_first)
    for (double& value : start) value = round_to(*round_first, value);
  Param param{std::move(name), {}, {}, {}};
  {
    PurposeScope purpose(Purpose::weights);
    param.value = Tensor::from(device, shape, dtype, start);
  }
  if (policy.master && bits_of(dtype) < bits_of(DType::f32)) {
    PurposeScope purpose(Purpose::master);
    param.master = Tensor::from(device, shape, DType::f32, start);
  }
  return param;
}

namespace {

std::vector<double> drawn_uniform(RandomKey key, const Shape& shape, double bound) {
  return draw_numbers(shape.elements(), [&](size_t i) { return (2 * key.uniform(i) - 1) * bound; });
}
std::vector<double> drawn_normal(RandomKey key, const Shape& shape, double deviation) {
  return draw_numbers(shape.elements(), [&](size_t i) { return key.normal(i) * deviation; });
}

}  // namespace

Param Init::uniform(std::string name, const Shape& shape, DType dtype, double bound) const {
  if (!draws) return without_values(*this, std::move(name), shape, dtype);
  const RandomKey own = key.child(name);
  return param(std::move(name), shape, dtype, drawn_uniform(own, shape, bound));
}

Param Init::normal(std::string name, const Shape& shape, DType dtype, double deviation) const {
  if (!draws) return without_values(*this, std::move(name), shape, dtype);
  const RandomKey own = key.child(name);
  return param(std::move(name), shape, dtype, drawn_normal(own, shape, deviation));
}

std::vector<double> drawn_weight(const Init& init, const std::string& name, const Shape& shape, int64_t fan_in,
                                 int64_t fan_out, const Start& start) {
  const RandomKey own = init.key.child(name);
  const auto he = [&](int64_t fan) { return drawn_normal(own, shape, std::sqrt(2 / static_cast<double>(fan))); };
  switch (start.kind) {
    case Start::Kind::torch:
      return drawn_uniform(own, shape, 1 / std::sqrt(static_cast<double>(fan_in)));
    case Start::Kind::he_fan_in:
      return he(fan_in);
    case Start::Kind::he_fan_out:
      return he(fan_out);
    case Start::Kind::normal:
      return drawn_normal(own, shape, start.deviation);
    case Start::Kind::mean:
      return std::vector<double>(static_cast<size_t>(shape.elements()), 1 / static_cast<double>(fan_in));
  }
  throw Error("unknown initial values");
}

Param weight_of(const Init& init, std::string name, const Shape& shape, int64_t fan_in, int64_t fan_out,
                const Start& start) {
  const DType dtype = init.policy.param;
  if (!init.draws) return without_values(init, std::move(name), shape, dtype);
  const std::vector<double> values = drawn_weight(init, name, shape, fan_in, fan_out, start);
  return init.param(std::move(name), shape, dtype, values);
}

Param bias_of(const Init& init, std::string name, int64_t entries, int64_t fan_in, const Start& start) {
  const Shape shape{entries};
  if (!start.bias)
    return init.uniform(std::move(name), shape, init.policy.param, 1 / std::sqrt(static_cast<double>(fan_in)));
  return init.param(std::move(name), shape, init.policy.param,
                    std::vector<double>(static_cast<size_t>(entries), *start.bias));
}

State Init::state(std::string name, const Shape& shape, double value) const {
  PurposeScope purpose(Purpose::state);
  State state{std::move(name), Tensor(device, shape, policy.state)};
  state.value.fill(value);
  return state;
}

State Init::state(std::string name, const Shape& shape, DType dtype, std::span<const double> values) const {
  PurposeScope purpose(Purpose::state);
  return {std::move(name), Tensor::from(device, shape, dtype, values)};
}

}  // namespace halfmark::models
