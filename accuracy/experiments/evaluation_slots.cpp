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

constexpr int64_t kChannels = 32, kGroups = 4, kHidden = 32;

LayerSpec convolution(const std::string& name, int64_t stride) {
  return {.kind = "conv2d",
          .name = name,
          .arguments = {{"out", kChannels}, {"kernel", int64_t{3}}, {"stride", stride}, {"padding", int64_t{1}}}};
}

// convolution, ReLU, convolution with stride 2, ReLU, mean of each channel, slot, two linear layers with a ReLU between. The
// slot begins with an image of one pixel and ends with a vector.
Network network_with(std::vector<LayerSpec> slot, int64_t classes) {
  Network network;
  std::vector<LayerSpec>& layers = network.layers;
  const auto add = [&](const char* kind, const char* name, Arguments arguments = {}) {
    layers.push_back({.kind = kind, .name = name, .arguments = std::move(arguments)});
  };
  layers.push_back(convolution("conv1", 1));
  add("relu", "relu1");
  layers.push_back(convolution("conv2", 2));
  add("relu", "relu2");
  add("global_avg_pool2d", "mean");
  for (LayerSpec& layer : slot) layers.push_back(std::move(layer));
  add("linear", "fc1", {{"out", kHidden}});
  add("relu", "relu3");
  add("linear", "fc2", {{"out", classes}});
  return network;
}

}  // namespace

std::vector<SlotNetwork> slot_networks(const Subject& subject) {
  if (subject.data != DataKind::images) return {};
  const LayerSpec flatten{.kind = "flatten", .name = "flatten"};
  const auto layer = [](const char* kind, Arguments arguments = {}) {
    return LayerSpec{.kind = kind, .name = "slot", .arguments = std::move(arguments)};
  };
  const auto with = [&](std::string name, std::vector<LayerSpec> slot) {
    return SlotNetwork{std::move(name), network_with(std::move(slot), subject.classes)};
  };
  return {with("none", {flatten}),
          with("batch_norm", {layer("batchnorm2d"), flatten}),
          with("group_norm", {layer("group_norm", {{"groups", kGroups}}), flatten}),
          with("layer_norm", {flatten, layer("layer_norm")}),
          with("gelu", {flatten, layer("gelu")}),
          with("silu", {flatten, layer("silu")}),
          with("softmax", {flatten, layer("softmax")}),
          with("sigmoid", {flatten, layer("sigmoid")})};
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
