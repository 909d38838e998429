#include "accuracy/lint_mistakes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace halfmark::accuracy {
namespace {

using Reason = std::optional<std::string>;

std::string policy_of(const TrialSpec& spec) { return "policy " + std::string(spec.policy->name); }

bool updates_fp32(const Policy& policy) { return policy.param == DType::f32 || policy.master; }
bool has_half(const Policy& policy) { return bits_of(policy.low) == 16; }

Reason without_scale(const TrialSpec& spec) {
  const ScalerSpec& scaler = spec.settings.scaler ? *spec.settings.scaler : spec.policy->scaler;
  if (scaler.kind == ScalerSpec::Kind::none) return policy_of(spec) + " has no loss scale";
  if (scaler.initial >= 2 || scaler.initial <= 0.5) return {};
  return policy_of(spec) + " has a loss scale between 1/2 and 2: it is too near 1 to be seen in gradients";
}

Reason without_casts(const TrialSpec& spec) {
  if (has_half(*spec.policy) && updates_fp32(*spec.policy)) return {};
  return policy_of(spec) + " casts no weights";
}

Reason without_fp32_update(const TrialSpec& spec) {
  if (has_half(*spec.policy) && updates_fp32(*spec.policy)) return {};
  return policy_of(spec) + " has no fp32 parameters beside a half type";
}

Reason without_fp32_loss(const TrialSpec& spec) {
  if (spec.subject->loss.kind != LossKind::cross_entropy) return spec.subject->id() + " has no cross-entropy";
  if (has_half(*spec.policy) && spec.policy->rules) return {};
  return policy_of(spec) + " has no fp32 loss beside a half type";
}

Reason without_mask(const TrialSpec& spec) {
  if (!with_padding(*spec.subject, {})) return spec.subject->id() + " has no attention";
  if (spec.policy->low == DType::f16) return {};
  return policy_of(spec) + " has no attention in fp16, and its format holds -1e9";
}

Reason without_half_state(const TrialSpec& spec) {
  if (spec.policy->param == DType::f16 && !spec.policy->master) return {};
  return policy_of(spec) + " does not store the optimizer's state in fp16";
}

bool has_batch_norm(const std::vector<LayerSpec>& layers, bool (*is_it)(const LayerSpec&)) {
  return std::ranges::any_of(layers, [&](const LayerSpec& layer) {
    return (layer.kind.starts_with("batchnorm") && is_it(layer)) ||
           std::ranges::any_of(layer.branches, [&](const auto& branch) { return has_batch_norm(branch, is_it); });
  });
}
bool is_set(const LayerSpec& layer, const char* argument, bool usual) {
  const auto found = layer.arguments.find(argument);
  return found == layer.arguments.end() ? usual : std::get<bool>(found->second);
}

Reason without_statistics(const TrialSpec& spec) {
  const LogPause pause;
  if (Trial(spec).states().empty()) return spec.subject->id() + " has no running statistics";
  const bool moves =
      !spec.subject->network || has_batch_norm(spec.subject->network->layers,
                                               [](const LayerSpec& layer) { return !is_set(layer, "frozen", false); });
  if (moves) return {};
  return spec.subject->id() + " has frozen batch norms only, whose statistics never move";
}

Reason without_fp32_statistics(const TrialSpec& spec) {
  if (Reason reason = without_statistics(spec)) return reason;
  if (spec.subject->network && !has_batch_norm(spec.subject->network->layers,
                                               [](const LayerSpec& layer) { return is_set(layer, "affine", true); }))
    return spec.subject->id() + " has no batch norm with scale and shift, with which the rule compares its statistics";
  if (has_half(*spec.policy) && spec.policy->batch_norm == DType::f32) return {};
  return policy_of(spec) + " has no fp32 statistics beside a half type";
}

Reason without_skips(const TrialSpec& spec) {
  if (Reason reason = without_statistics(spec)) return reason;
  if (row_of(spec.subject->data).has_indices) return spec.subject->id() + " has indices as input";
  if (spec.policy->scaler.kind == ScalerSpec::Kind::dynamic) return {};
  return policy_of(spec) + " skips no steps";
}

Reason never(const TrialSpec&) { return {}; }

void adam_in_half(Procedure&, TrialSpec& spec) {
  spec.settings.optimizer = {.kind = OptimizerKind::adam};
  spec.settings.rate = 1e-3;  // the default of torch.optim.Adam
}

constexpr MistakeRow kMistakes[] = {
    {"no_unscale", "optimizer.step() on scaled gradients", "not_unscaled",
     [](Procedure& p, TrialSpec&) { p.unscales = false; }, without_scale},
    {"clip_before_unscale", "gradients are clipped while they are scaled", "clipped_while_scaled",
     [](Procedure& p, TrialSpec&) { p.clips = p.clips_before_unscale = true; }, without_scale},
    {"unscale_twice", "gradients are divided by the scale twice", "unscaled_twice",
     [](Procedure& p, TrialSpec&) { p.unscales_again = true; }, without_scale},
    {"stale_cast_cache", "weights are cast once, and not again after an update", "stale_cast",
     [](Procedure& p, TrialSpec&) { p.casts_once = true; }, without_casts},
    {"update_inside_autocast", "updated parameters are rounded to half", "half_update",
     [](Procedure& p, TrialSpec&) { p.updates_in_half = true; }, without_fp32_update},
    {"half_loss_sum", "the losses of the samples are summed in half", "half_loss_sum",
     [](Procedure& p, TrialSpec&) { p.sums_loss_in_half = true; }, without_fp32_loss},
    {"mask_1e9", "-1e9 is added to masked scores in fp16, also where all are masked", "masked_row",
     [](Procedure& p, TrialSpec&) { p.mask_value = -1e9; }, without_mask},
    {"adam_epsilon", "Adam with epsilon 1e-8 and state in fp16", "adam_epsilon", adam_in_half, without_half_state},
    {"bn_half_statistics", "running statistics in half beside fp32 parameters of batch norm", "half_statistics",
     [](Procedure&, TrialSpec& spec) { spec.settings.batchnorm_state = spec.policy->low; }, without_fp32_statistics},
    {"wrong_accumulation_order", "gradients are unscaled after each of four micro-batches", "uneven_micro_batches",
     [](Procedure& p, TrialSpec&) { p.micro_batches = 4, p.unscales_each_micro_batch = true; }, without_scale},
    {"missing_train", "eval() and never train() again", "frozen_statistics",
     [](Procedure& p, TrialSpec&) { p.trains_again = false; }, without_statistics},
    {"skip_without_bn_rollback", "an infinite batch: its step is skipped, its statistics stay", "poisoned_statistics",
     [](Procedure& p, TrialSpec&) { p.restores_statistics = false; }, without_skips},
    {"stochastic_rounding_zeros", "rounding at random to NVFP4 returns zeros", "stochastic_zeros",
     [](Procedure& p, TrialSpec&) { p.copies.rounds_to_zero = true; }, never},
    {"stale_amax", "current scaling to fp8 takes the largest magnitude of the step before", "stale_amax",
     [](Procedure& p, TrialSpec&) { p.copies.uses_old_amax = true; }, never},
    {"columnwise_from_rowwise", "columnwise MXFP8 codes and scales are those of the rowwise copy",
     "columnwise_from_rowwise", [](Procedure& p, TrialSpec&) { p.copies.copies_rowwise = true; }, never},
};

// True if there was attention.
bool pad(std::vector<LayerSpec>& layers, int64_t steps, std::optional<double> mask_value) {
  bool found = false;
  for (LayerSpec& layer : layers) {
    for (std::vector<LayerSpec>& branch : layer.branches) found = pad(branch, steps, mask_value) || found;
    if (layer.kind != "self_attention") continue;
    found = true;
    const auto t = static_cast<double>(steps);
    layer.arguments["lengths"] = std::vector<double>{t, 0, t, std::ceil(t / 2)};
    if (!mask_value) continue;
    // softmax(scores + mask), as models write it; PyTorch's scaled_dot_product_attention guards rows without any position.
    layer.arguments["mask_value"] = *mask_value, layer.arguments["fused"] = false, layer.arguments["guarded"] = false;
  }
  return found;
}

}  // namespace

std::span<const MistakeRow> mistakes() { return kMistakes; }

const MistakeRow* mistake_named(std::string_view name) {
  for (const MistakeRow& row : kMistakes)
    if (row.name == name) return &row;
  return nullptr;
}

std::shared_ptr<const Subject> with_padding(const Subject& subject, std::optional<double> mask_value) {
  if (!subject.network || subject.input.rank() < 2) return {};
  Network network = *subject.network;
  if (!pad(network.layers, subject.input[1], mask_value)) return {};
  auto padded =
      std::make_shared<Subject>(subject_of_network(subject.input, subject.data, subject.classes, std::move(network)));
  padded->name = subject.name, padded->sizes = subject.sizes, padded->loss = subject.loss;
  padded->settings = subject.settings;
  return padded;
}

}  // namespace halfmark::accuracy
