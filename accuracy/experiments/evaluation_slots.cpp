// Part slots: one network with one place for a layer, which is a norm or an activation in turn. Does the cost of full half
// in evaluation depend on the kind of layer?
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

constexpr int64_t kChannels = 16, kGroups = 4;

LayerSpec convolution(const std::string& name, int64_t stride) {
  return {.kind = "conv2d",
          .name = name,
          .arguments = {
              {"out", kChannels}, {"kernel", int64_t{3}}, {"stride", stride}, {"padding", int64_t{1}}}};
}

// convolution, slot, convolution with stride 2, ReLU, mean, linear.
Network network_with(std::vector<LayerSpec> slot, int64_t classes) {
  Network network;
  std::vector<LayerSpec>& layers = network.layers;
  layers.push_back(convolution("conv1", 1));
  for (LayerSpec& layer : slot) layers.push_back(std::move(layer));
  layers.push_back(convolution("conv2", 2));
  layers.push_back({.kind = "relu", .name = "relu"});
  layers.push_back({.kind = "global_avg_pool2d", .name = "mean"});
  layers.push_back({.kind = "flatten", .name = "flatten"});
  layers.push_back({.kind = "linear", .name = "fc", .arguments = {{"out", classes}}});
  return network;
}

}  // namespace

std::vector<SlotNetwork> slot_networks(const Subject& subject) {
  if (subject.data != DataKind::images) return {};
  const auto with = [&](std::string name, const char* kind, Arguments arguments = {}) {
    return SlotNetwork{std::move(name),
                       network_with({{.kind = kind, .name = "slot", .arguments = std::move(arguments)}},
                                    subject.classes)};
  };
  // Layer norm and softmax go over the last axis: the width of the image.
  return {{"none", network_with({}, subject.classes)},
          with("batch_norm", "batchnorm2d"),
          with("layer_norm", "layer_norm"),
          with("group_norm", "group_norm", {{"groups", kGroups}}),
          with("gelu", "gelu"),
          with("silu", "silu"),
          with("softmax", "softmax"),
          with("sigmoid", "sigmoid")};
}

void evaluate_slots(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  const FormOfModel *fp32 = nullptr, *half = nullptr;
  for (const FormOfModel& form : forms_of_models()) {
    if (form.name == "fp32") fp32 = &form;
    if (form.name == "full_fp16") half = &form;
  }
  for (SlotNetwork& slot : slot_networks(*given.subject)) {
    const Subject subject = with_network(*given.subject, std::move(slot.network), slot.name);
    std::vector<double> gaps, errors, losses;
    double flips = 0, predictions = 0;
    for (int64_t seed = 0; seed < axes.seeds; ++seed) {
      TrialSpec spec = given;
      spec.subject = &subject, spec.seed = given.seed + static_cast<uint64_t>(seed);
      const ModelValues trained = train_checkpoints(spec, axes.steps, 1).back();
      Evaluator evaluator(spec, axes.samples);
      Answers answers, exact;
      const double wanted = evaluator.exact(trained, &exact).loss;
      gaps.push_back(evaluator.evaluate(trained, *half, &answers).loss - wanted);
      losses.push_back(evaluator.evaluate(trained, *fp32).loss);
      const AnswerErrors found = compare_answers(subject.data, answers, exact);
      errors.push_back(found.rms);
      flips += found.flips, predictions += found.predictions;
    }
    const auto write = [&](std::string_view metric, const std::vector<double>& values) {
      const SampleMean mean = sample_mean(values);
      Measurement& number = out.number(metric, slot.name, mean.mean);
      number.standard_error = mean.error, number.samples = values;
    };
    write("evaluation.slot_loss_gap", gaps);
    write("evaluation.slot_logit_error", errors);
    out.number("evaluation.slot_flips", slot.name, 1e4 * flips / predictions).standard_error =
        1e4 * share_error(flips, predictions);
    out.number("evaluation.slot_seed_deviation", slot.name, sample_mean(losses).deviation).samples = losses;
  }
}

}  // namespace halfmark::accuracy
