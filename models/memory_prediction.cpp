#include "models/memory_prediction.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "models/data_kinds.h"
#include "models/index_storage.h"
#include "models/memory_walk.h"
#include "models/network/layer_kinds.h"
#include "models/optimizer.h"

namespace halfmark::models {
namespace {

// Of each parameter, in the dtype of what it updates.
int states_of(const OptimizerSpec& spec, double momentum) {
  int states = spec.storage == Storage::kahan ? 1 : 0;
  switch (spec.kind) {
    case OptimizerKind::sgd:
      return states + (momentum != 0 ? 1 : 0);
    case OptimizerKind::adam:
    case OptimizerKind::adam_keras:
    case OptimizerKind::adamw:
      return states + 2;  // the moments
  }
  return states;
}

// What a loss keeps for backward. The gradient of the output is computed in the dtype in which the output is read.
struct LossMemory {
  DType read;    // of the output: a copy where it differs
  DType result;  // of the loss
  bool keeps_output = false;
  StoredTensors keeps = {};
  StoredTensors other = {};          // from forward to backward, but not counted as kept
  StoredTensors with_gradient = {};  // a moment of backward
};

LossMemory loss_memory(const LossSpec& spec, const MemoryRequest& r, const Shape& targets) {
  const int64_t elements = r.input.elements();
  const auto of_values = [&](std::string_view operation) {
    const DType read = r.reads(operation, r.given), target = r.reads(operation, r.policy.param);
    LossMemory memory{.read = read, .result = r.writes(operation, read), .keeps_output = true};
    if (target != r.policy.param) memory.keeps.push_back({elements, target});
    return memory;
  };
  switch (spec.kind) {
    case LossKind::cross_entropy: {
      // The logarithms of the probabilities, and the weights of classes.
      const DType read = r.reads("cross_entropy_loss", r.given), logarithms = r.writes("log_softmax", read);
      LossMemory memory{.read = read, .result = logarithms, .keeps = {{elements, logarithms}}};
      if (!spec.class_weights.empty())
        memory.other.push_back({static_cast<int64_t>(spec.class_weights.size()), logarithms});
      return memory;
    }
    case LossKind::binary_cross_entropy_with_logits:
    case LossKind::focal:
      return of_values("binary_cross_entropy_with_logits");
    case LossKind::binary_cross_entropy:
      return of_values("binary_cross_entropy");
    case LossKind::mse:
      return of_values("mse_loss");
    case LossKind::smooth_l1:
      return of_values("smooth_l1_loss");
    case LossKind::ctc: {
      // The logarithms, and alpha of every step for each symbol of the extended labels; at least f32.
      const DType read = r.reads("log_softmax", r.given), logarithms = wider(r.writes("log_softmax", read), DType::f32);
      const int64_t symbols = targets[1] - 2;
      return {.read = read,
              .result = logarithms,
              .keeps = {{elements, logarithms}, {r.input[0] * r.input[1] * (2 * symbols + 1), logarithms}}};
    }
    case LossKind::detection: {
      // Columns of the output, of the targets and of their weights, each as its operation reads it.
      const int64_t rows = r.input[0] * r.input[1], width = r.input[2];
      LossMemory memory{.read = r.given, .result = DType::f32};
      bool is_first = true;
      for (const auto& [operation, columns] :
           {std::pair<std::string_view, int64_t>{"binary_cross_entropy_with_logits", width - 4},
            {"smooth_l1_loss", 4}}) {
        const DType read = r.reads(operation, r.given), target = r.reads(operation, r.policy.param);
        const StoredTensor values{rows * columns, read}, wanted{rows * columns, target};
        memory.keeps.insert(memory.keeps.end(), {values, wanted, wanted});
        const DType result = r.writes(operation, read);
        memory.result = is_first ? result : wider(memory.result, result);
        if (!std::exchange(is_first, false)) continue;  // the scores are many, the boxes few
        memory.with_gradient = {values};
        if (read != r.given) memory.with_gradient.push_back({values.elements, r.given});
      }
      return memory;
    }
  }
  throw Error("a loss of no known kind");
}

// What every step but the first begins with, beside its batch.
void add_parameters(const MemoryWalk& walk, const std::vector<LayerSpec>& layers, const Shape& input,
                    const Policy& policy, int states, MemoryTotal& total) {
  const auto add = [&](Purpose purpose, int64_t elements, DType dtype) {
    total.add(purpose, StoredTensor{elements, dtype}.bytes());
  };
  Shape shape = input;
  for (const LayerSpec& spec : layers) {
    for (const std::vector<LayerSpec>& branch : spec.branches)
      add_parameters(walk, branch, shape, policy, states, total);
    if (layer_kind_named(spec.kind).memory.of_layer()) {  // the weights of the same layer again are counted there
      const LayerMemory memory = walk.memory_of(spec, shape, policy.low);
      add(Purpose::state, memory.states, memory.states_dtype);
      for (const LayerMemory::Weight& weight : memory.weights) {
        if (!weight.is_own) continue;
        add(Purpose::weights, weight.elements, weight.dtype);
        const bool has_master = policy.master && bits_of(weight.dtype) < bits_of(DType::f32);
        if (has_master) add(Purpose::master, weight.elements, DType::f32);
        if (!weight.is_trained) continue;
        add(Purpose::gradients, weight.elements, wider(policy.grad, weight.dtype));
        add(Purpose::optimizer, states * weight.elements, has_master ? DType::f32 : weight.dtype);
      }
    }
    shape = walk.output_of(spec);
  }
}

// Forward and the loss; then backward.
void add_step(MemoryWalk& walk, const Subject& subject, const Policy& policy, const Shape& targets,
              bool converts_labels, const HeldTensorPtr& x, MemoryTotal& total, MemoryPrediction& prediction) {
  Shape shape = subject.input;
  WeightCasts casts;
  const HeldTensorPtr output = walk.forward(subject.network->layers, x, shape, casts, true);
  const std::string name = "loss";
  const MemoryRequest request{
      .policy = policy, .name = name, .input = shape, .output = {1}, .given = output->dtype(), .arguments = {}};
  if (!subject.has_labels()) {
    casts.clear();
    prediction.saved = total.now().by_purpose[static_cast<size_t>(Purpose::saved)];
    // Numbers that were drawn once; their dtype is that of the output.
    walk.backward(subject.network->layers, output, subject.input);
    return;
  }
  LossMemory memory = loss_memory(subject.loss, request, targets);
  if (converts_labels) memory.other.push_back({targets.elements(), DType::i32});
  HeldTensorPtr read = walk.cast(output, shape.elements(), memory.read);
  std::vector<HeldTensorPtr> kept;
  for (const StoredTensor& one : memory.keeps) kept.push_back(walk.fresh(one.elements, one.dtype));
  std::vector<HeldTensorPtr> other;
  for (const StoredTensor& one : memory.other) other.push_back(walk.fresh(one.elements, one.dtype));
  const HeldTensorPtr loss = walk.fresh(1, memory.result);
  if (memory.keeps_output) kept.push_back(read);
  for (const HeldTensorPtr& one : kept) one->keep();
  read.reset();
  casts.clear();
  prediction.saved = total.now().by_purpose[static_cast<size_t>(Purpose::saved)];

  HeldTensorPtr gradient = walk.fresh(shape.elements(), memory.read);
  const HeldTensorPtr given = walk.cast(gradient, shape.elements(), output->dtype());
  gradient.reset();
  total.moment(memory.with_gradient);
  kept.clear(), other.clear();
  walk.backward(subject.network->layers, given, subject.input);
}

// The dtype of the last layer's result.
DType result_of(const Subject& subject, const Policy& policy, DType x) {
  MemoryTotal unused;
  MemoryWalk walk(subject, policy, unused);
  Shape shape = subject.input;
  WeightCasts casts;
  const auto input = std::make_shared<HeldTensor>(unused, Purpose::input, StoredTensor{subject.input.elements(), x});
  return walk.forward(subject.network->layers, input, shape, casts, false)->dtype();
}

}  // namespace

MemoryPrediction predict_memory(const Subject& subject, const Policy& given, const Settings& settings) {
  HM_CHECK(subject.network, "subject " + subject.id() + " is a function of a program; its layers are not known");
  HM_CHECK(given.layers.empty(),
           "policy " + std::string(given.name) + ": memory is not predicted for layers with policies of their own");
  Policy policy = given;
  if (settings.batchnorm_state) policy.state = *settings.batchnorm_state, policy.halves_plain_batch_norm = false;
  if (settings.scaler) policy.scaler = *settings.scaler;
  const bool has_labels = subject.has_labels();
  const DType x_dtype = subject.input_dtype(policy);

  MemoryTotal total;
  MemoryWalk walk(subject, policy, total);
  const Shape output = walk.facts().empty() ? subject.input : walk.facts().back().output;
  add_parameters(walk, subject.network->layers, subject.input, policy,
                 states_of(stored_under(policy, settings.optimizer), settings.momentum), total);
  // Whether a gradient was not finite.
  if (policy.scaler.kind != ScalerSpec::Kind::none) total.add(Purpose::other, StoredTensor{1, DType::f32}.bytes());

  // Indices of 64 bits are converted to 32 bits for the kernels, in each pass.
  const bool is_wide = settings.indices == IndexType::i64, converts_x = is_wide && row_of(subject.data).has_indices;
  if (converts_x)
    total.add(Purpose::input, static_cast<size_t>(subject.input.elements()) * bytes_of_index(settings.indices));
  const auto x = std::make_shared<HeldTensor>(total, converts_x ? Purpose::temporary : Purpose::input,
                                              StoredTensor{subject.input.elements(), x_dtype});
  bool converts_labels = false;
  Shape targets;
  if (!has_labels) {  // the gradient of the output, drawn once
    total.add(Purpose::input, StoredTensor{output.elements(), result_of(subject, policy, x_dtype)}.bytes());
  } else if (row_of(subject.loss.kind).targets == TargetKind::values) {
    targets = output;
    total.add(Purpose::input, StoredTensor{targets.elements(), policy.param}.bytes());
  } else if (row_of(subject.loss.kind).targets == TargetKind::boxes) {  // values and their weights
    targets = {output[0], output[1], 2 * output[2]};
    total.add(Purpose::input, StoredTensor{targets.elements(), policy.param}.bytes());
  } else {
    targets = target_shape(subject.data, subject.input);
    total.add(Purpose::input, static_cast<size_t>(targets.elements()) * bytes_of_index(settings.indices));
    converts_labels = is_wide;
  }

  MemoryPrediction prediction;
  add_step(walk, subject, policy, targets, converts_labels, x, total, prediction);
  prediction.peak = total.peak();
  for (const LayerFacts& facts : walk.facts())
    prediction.layers.push_back({facts.layer, walk.bytes_kept()[facts.layer]});
  return prediction;
}

}  // namespace halfmark::models
