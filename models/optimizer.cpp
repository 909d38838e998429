#include "models/optimizer.h"

#include <map>
#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

// Epsilons: torch.optim.Adam and AdamW 1e-8, keras.optimizers.Adam 1e-7.
constexpr OptimizerRow kOptimizers[] = {
    {OptimizerKind::sgd, "sgd", "torch.optim.SGD", "dampening nesterov", 0},
    {OptimizerKind::adam, "adam", "torch.optim.Adam: weight decay is added to the gradient", "beta1 beta2 epsilon",
     1e-8},
    {OptimizerKind::adam_keras, "adam_keras",
     "keras.optimizers.Adam: epsilon is added before the bias of the second moment is corrected", "beta1 beta2 epsilon",
     1e-7},
    {OptimizerKind::adamw, "adamw", "torch.optim.AdamW: weight decay multiplies the parameter", "beta1 beta2 epsilon",
     1e-8},
};

constexpr StorageRow kStorages[] = {
    {Storage::nearest, "nearest", "parameters are rounded to nearest"},
    {Storage::stochastic, "stochastic", "parameters are rounded at random, state to nearest"},
    {Storage::kahan, "kahan", "what a rounded parameter lacks is kept and added to the next step"},
};

AdamKind adam_kind(OptimizerKind kind) {
  if (kind == OptimizerKind::adamw) return AdamKind::adamw;
  return kind == OptimizerKind::adam_keras ? AdamKind::keras : AdamKind::adam;
}

Tensor& updated_of(Param& param) { return param.master.empty() ? param.value : param.master; }

}  // namespace

std::span<const OptimizerRow> optimizer_rows() { return kOptimizers; }
const OptimizerRow& optimizer_named(std::string_view name) { return named("optimizer", kOptimizers, name); }
const OptimizerRow& row_of(OptimizerKind kind) { return kOptimizers[static_cast<size_t>(kind)]; }
std::span<const StorageRow> storage_rows() { return kStorages; }
const StorageRow& storage_named(std::string_view name) { return named("storage of parameters", kStorages, name); }
const StorageRow& row_of(Storage storage) { return kStorages[static_cast<size_t>(storage)]; }

OptimizerSpec stored_under(const Policy& policy, const OptimizerSpec& spec) {
  OptimizerSpec own = spec;
  if (own.storage == Storage::nearest) own.storage = policy.storage;
  return own;
}

Optimizer::Optimizer(const OptimizerSpec& spec, double rate, double momentum, double weight_decay, uint64_t noise)
    : spec_(spec), rate_(rate), momentum_(momentum), weight_decay_(weight_decay), noise_(noise) {
  const std::string name(row_of(spec.kind).name);
  HM_CHECK(!spec.nesterov || (momentum > 0 && spec.dampening == 0),
           name + ": Nesterov's step needs a momentum and no dampening");  // as torch.optim.SGD
  HM_CHECK(spec.beta1 >= 0 && spec.beta1 < 1 && spec.beta2 >= 0 && spec.beta2 < 1, name + ": a beta is not in [0, 1)");
  HM_CHECK(spec.rounding == StepRounding::once || spec.kind != OptimizerKind::adam_keras,
           name + ": rounding after each operation is defined for PyTorch's optimizers only");
  HM_CHECK(spec.rounding == StepRounding::once || spec.storage == Storage::nearest,
           name + ": a step that rounds after each operation stores to nearest");
  HM_CHECK(spec.clip_norm >= 0, name + ": clip_norm is negative");
}

void Optimizer::clip(const std::vector<Param*>& params) {
  if (spec_.clip_norm == 0) return;
  Tensors gradients;
  DType widest = DType::f16;
  for (Param* param : params) {
    if (param->grad.empty()) continue;
    widest = gradients.empty() ? param->grad.dtype() : wider(widest, param->grad.dtype());
    gradients.push_back(param->grad);
  }
  if (gradients.empty()) return;
  if (spec_.rounding == StepRounding::once) widest = wider(widest, DType::f32);
  const PurposeScope purpose(Purpose::other);
  Tensor norm(gradients.front().device(), Shape{1}, widest);
  run(GradientNorm{.gradients = gradients, .norm = norm});
  run(ClipGradients{.gradients = gradients, .norm = norm, .limit = spec_.clip_norm});
}

void Optimizer::step(const std::vector<Param*>& params, const Tensor& found_inf) {
  states_.resize(params.size());
  stepped_.clear();
  const bool is_sgd = spec_.kind == OptimizerKind::sgd;
  // The parameters by the number of this step: they differ only if a parameter had no gradient before.
  std::map<int64_t, std::vector<UpdatedTensors>> by_number;
  for (size_t i = 0; i < params.size(); ++i) {
    Param& param = *params[i];
    if (param.grad.empty()) continue;
    Tensor& updated = updated_of(param);
    State& state = states_[i];
    const auto start = [&](Tensor& tensor) {
      if (!tensor.empty()) return;
      const PurposeScope purpose(Purpose::optimizer);
      tensor = Tensor::zeros(updated.device(), updated.shape(), updated.dtype());
    };
    if (!is_sgd || momentum_ != 0) start(state.first);
    if (!is_sgd) start(state.second);
    if (spec_.storage == Storage::kahan) start(state.compensation);
    stepped_.push_back(i);
    by_number[++state.steps].push_back({.parameter = updated,
                                        .gradient = param.grad,
                                        .first = state.first,
                                        .second = state.second,
                                        .compensation = state.compensation,
                                        .low = param.master.empty() ? Tensor() : param.value});
  }
  const RandomKey noise = RandomKey(noise_).child(static_cast<uint64_t>(steps_++));
  for (auto& [number, tensors] : by_number) {
    const uint64_t own = noise.child(static_cast<uint64_t>(number)).value();
    const Updates updates{tensors, found_inf, number, own};
    is_sgd ? sgd(updates) : adam(updates);
  }
}

void Optimizer::forget_step() {
  for (const size_t i : stepped_) --states_[i].steps;
  stepped_.clear();
  --steps_;
}

void Optimizer::sgd(const Updates& updates) const {
  run(SgdStep{.tensors = updates.tensors,
              .found_inf = updates.found_inf,
              .rate = rate_,
              .momentum = momentum_,
              .dampening = spec_.dampening,
              .weight_decay = weight_decay_,
              .nesterov = spec_.nesterov,
              .first = updates.number == 1,
              .noise = updates.noise,
              .storage = spec_.storage,
              .rounding = spec_.rounding});
}

void Optimizer::adam(const Updates& updates) const {
  run(AdamStep{.tensors = updates.tensors,
               .found_inf = updates.found_inf,
               .kind = adam_kind(spec_.kind),
               .rate = rate_,
               .beta1 = spec_.beta1,
               .beta2 = spec_.beta2,
               .epsilon = spec_.epsilon.value_or(row_of(spec_.kind).epsilon),
               .weight_decay = weight_decay_,
               .step = updates.number,
               .noise = updates.noise,
               .storage = spec_.storage,
               .rounding = spec_.rounding});
}

std::vector<Tensor*> Optimizer::tensors() {
  std::vector<Tensor*> all;
  for (State& state : states_)
    for (Tensor* tensor : {&state.first, &state.second, &state.compensation})
      if (!tensor->empty()) all.push_back(tensor);
  return all;
}

}  // namespace halfmark::models
