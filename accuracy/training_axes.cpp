#include "accuracy/training_axes.h"

#include <string_view>

namespace halfmark::accuracy {
namespace {
constexpr std::string_view kOwn = "own";
}

std::vector<Axis> optimizer_axes() {
  return {{"optimizer", {kOwn, "sgd", "adam", "adamw", "adam_keras"}, {}, "own: that of the subject"},
          {"rate",
           {kOwn, "0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1"},
           AxisNumbers{0, 1e6, false},  // as the rate of a model file
           "learning rate; own: 0.001 if the axis optimizer names a form of Adam, else that of the subject"},
          {"storage",
           {kOwn, "nearest", "stochastic", "kahan"},
           {},
           "how parameters are rounded; own: that of the subject, else of the policy"}};
}

void configure_optimizer(const Harness& harness, TrialSpec& spec) {
  Settings& settings = spec.settings;
  if (const std::string name = axis_value(harness, spec, "optimizer"); name != kOwn) {
    const OptimizerKind kind = optimizer_named(name).kind;
    settings.optimizer = {
        .kind = kind, .storage = settings.optimizer.storage, .clip_norm = settings.optimizer.clip_norm};
    // The default of torch.optim.Adam and AdamW and of keras.optimizers.Adam; SGD has none.
    if (kind != OptimizerKind::sgd) settings.rate = 1e-3;
  }
  if (const std::string rate = axis_value(harness, spec, "rate"); rate != kOwn) settings.rate = std::stod(rate);
  if (const std::string name = axis_value(harness, spec, "storage"); name != kOwn)
    settings.optimizer.storage = storage_named(name).storage;
}

std::optional<std::string> refuses_optimizer(const Harness& harness, const TrialSpec& spec,
                                             const std::string& control) {
  if (control != "none")
    for (const Axis& axis : optimizer_axes())
      if (axis_value(harness, spec, axis.name) != kOwn)
        return "control " + control + " has settings of its own, so it takes no " + std::string(axis.name);
  const std::string storage = axis_value(harness, spec, "storage");
  if (storage != kOwn && spec.policy->storage != Storage::nearest)
    return "policy " + std::string(spec.policy->name) + " has a storage of its own, so it takes no storage";
  if (storage != kOwn && storage != "nearest" && (spec.policy->master || spec.policy->param == DType::f32))
    return "storage " + storage + " is for parameters narrower than fp32, policy " + std::string(spec.policy->name) +
           " updates fp32";
  return {};
}

}  // namespace halfmark::accuracy
