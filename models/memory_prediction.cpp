#include "models/memory_prediction.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "models/data_kinds.h"
#include "models/network/layer_kinds.h"
#include "models/optimizer.h"

namespace halfmark::models {
namespace {

// Labels and indices, as a trial stores them.
constexpr DType kLabels = DType::i32;

class Total {
 public:
  void add(Purpose purpose, size_t bytes) {
    now_.total += bytes, now_.by_purpose[static_cast<size_t>(purpose)] += bytes;
    moment({});
  }
  void remove(Purpose purpose, size_t bytes) {
    now_.total -= bytes, now_.by_purpose[static_cast<size_t>(purpose)] -= bytes;
  }
  // Everything that is there, and for a moment these temporary tensors.
  void moment(const StoredTensors& temporary) {
    size_t more = 0;
    for (const StoredTensor& one : temporary) more += one.bytes();
    if (now_.total + more <= peak_.total) return;
    peak_ = now_;
    peak_.total += more, peak_.by_purpose[static_cast<size_t>(Purpose::temporary)] += more;
  }
  const MemoryUse& now() const { return now_; }
  const MemoryUse& peak() const { return peak_; }

 private:
  MemoryUse now_, peak_;
};

// A tensor that lives as long as someone holds it.
class Held {
 public:
  Held(Total& total, Purpose purpose, StoredTensor form) : total_(total), purpose_(purpose), form_(form) {
    total_.add(purpose_, form_.bytes());
  }
  ~Held() { total_.remove(purpose_, form_.bytes()); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  DType dtype() const { return form_.dtype; }
  // A temporary tensor that is kept is a saved one. The bytes that this adds to those saved.
  size_t keep() {
    if (purpose_ != Purpose::temporary) return 0;
    total_.remove(purpose_, form_.bytes());
    purpose_ = Purpose::saved;
    total_.add(purpose_, form_.bytes());
    return form_.bytes();
  }

 private:
  Total& total_;
  Purpose purpose_;
  StoredTensor form_;
};
using TensorPtr = std::shared_ptr<Held>;

using Casts = std::map<std::pair<std::string, DType>, TensorPtr>;

struct Kept {               // by one layer, for backward
  LayerMemory memory = {};  // of one without branches
  std::vector<TensorPtr> tensors = {};
  int64_t elements = 0;                    // of the input
  DType given = DType::f32;                // of the input
  std::vector<StoredTensor> results = {};  // of branches
};

// Runs the rules of a network's layers forward and backward.
class Walk {
 public:
  Walk(const Subject& subject, const Policy& policy, Total& total) : policy_(policy), total_(total) {
    facts_ = layer_facts(*subject.network, subject.input);
    for (const LayerFacts& facts : facts_) outputs_[facts.layer] = facts.output;
  }

  TensorPtr fresh(int64_t elements, DType dtype) {
    return std::make_shared<Held>(total_, Purpose::temporary, StoredTensor{elements, dtype});
  }
  // x itself if it has the dtype.
  TensorPtr cast(const TensorPtr& x, int64_t elements, DType dtype) {
    return x->dtype() == dtype ? x : fresh(elements, dtype);
  }

  // `shape` becomes that of the result.
  TensorPtr forward(const std::vector<LayerSpec>& layers, TensorPtr x, Shape& shape, Casts& casts, bool keeps) {
    for (const LayerSpec& spec : layers) {
      x = forward(spec, x, shape, casts, keeps);
      shape = outputs_.at(&spec);
    }
    return x;
  }
  // Takes what forward has kept, the last first. Empty: indices have no gradient.
  TensorPtr backward(const std::vector<LayerSpec>& layers, const TensorPtr& gradient, const Shape& input) {
    std::vector<Shape> inputs;
    Shape shape = input;
    for (const LayerSpec& spec : layers) inputs.push_back(shape), shape = outputs_.at(&spec);
    TensorPtr dx = gradient;
    for (size_t i = layers.size(); i-- > 0;) dx = backward(layers[i], dx, inputs[i]);
    return dx;
  }

  LayerMemory memory_of(const LayerSpec& spec, const Shape& input, DType given) const {
    const LayerKind& kind = layer_kind_named(spec.kind);
    const Arguments arguments = checked(kind.arguments, spec.arguments);
    return kind.memory.of_layer()({.policy = policy_,
                                   .name = spec.name,
                                   .input = input,
                                   .output = outputs_.at(&spec),
                                   .given = given,
                                   .arguments = {kind.arguments, &arguments}});
  }
  const std::vector<LayerFacts>& facts() const { return facts_; }
  const Shape& output_of(const LayerSpec& spec) const { return outputs_.at(&spec); }
  std::map<const LayerSpec*, size_t>& bytes_kept() { return bytes_kept_; }

 private:
  TensorPtr forward(const LayerSpec& spec, const TensorPtr& x, const Shape& input, Casts& casts, bool keeps) {
    const MemoryRule rule = layer_kind_named(spec.kind).memory;
    if (!rule.of_layer()) {
      switch (rule.joins()) {
        case Joins::sum:
          return join(spec, x, input, casts, keeps, false);
        case Joins::channels:
          return join(spec, x, input, casts, keeps, true);
        case Joins::again: {
          if (keeps) {
            bytes_kept_[&spec] += x->keep();
            kept_.push_back({.tensors = {x}, .elements = input.elements(), .given = x->dtype()});
          }
          Shape shape = input;
          return forward(spec.branches[0], x, shape, casts, false);
        }
      }
    }
    LayerMemory memory = memory_of(spec, input, x->dtype());
    const TensorPtr read = cast(x, input.elements(), memory.read);
    Kept kept{.tensors = {}, .elements = input.elements(), .given = x->dtype()};
    for (const LayerMemory::Weight& weight : memory.weights) {
      if (weight.read == weight.dtype) continue;
      TensorPtr& copy = casts[{weight.name, weight.read}];
      if (!copy) copy = std::make_shared<Held>(total_, Purpose::casts, StoredTensor{weight.elements, weight.read});
      if (weight.kept) kept.tensors.push_back(copy);
    }
    for (const StoredTensor& one : memory.keeps) kept.tensors.push_back(fresh(one.elements, one.dtype));
    for (const StoredTensors& moment : memory.before_result) total_.moment(moment);
    TensorPtr result = memory.is_view ? x : fresh(outputs_.at(&spec).elements(), memory.result);
    total_.moment(memory.with_result);
    if (!keeps) return result;
    if (memory.keeps_input) kept.tensors.push_back(read);
    if (memory.keeps_result) kept.tensors.push_back(result);
    for (const TensorPtr& one : kept.tensors) bytes_kept_[&spec] += one->keep();
    kept.memory = std::move(memory);
    kept_.push_back(std::move(kept));
    return result;
  }

  // The widest of the dtypes of the branches; copies into one tensor are made one after the other.
  TensorPtr join(const LayerSpec& spec, const TensorPtr& x, const Shape& input, Casts& casts, bool keeps, bool copies) {
    std::vector<TensorPtr> results;
    Kept kept{.tensors = {}, .elements = input.elements(), .given = x->dtype()};
    DType widest = DType::f32;
    for (const std::vector<LayerSpec>& branch : spec.branches) {
      Shape shape = input;
      results.push_back(forward(branch, x, shape, casts, keeps));
      widest = results.size() == 1 ? results[0]->dtype() : wider(widest, results.back()->dtype());
      kept.results.push_back({shape.elements(), results.back()->dtype()});
    }
    const TensorPtr result = fresh(outputs_.at(&spec).elements(), widest);
    for (const StoredTensor& part : kept.results)
      if (copies && part.dtype != widest) total_.moment({{part.elements, widest}});
    if (keeps) kept_.push_back(std::move(kept));
    return result;
  }

  TensorPtr backward(const LayerSpec& spec, const TensorPtr& dy, const Shape& input) {
    const MemoryRule rule = layer_kind_named(spec.kind).memory;
    if (!rule.of_layer()) {
      switch (rule.joins()) {
        case Joins::sum:
          return split(spec, dy, input, false);
        case Joins::channels:
          return split(spec, dy, input, true);
        case Joins::again: {
          const Kept kept = take();
          Casts casts;
          Shape shape = input;
          forward(spec.branches[0], kept.tensors[0], shape, casts, true);
          casts.clear();
          return backward(spec.branches[0], dy, input);
        }
      }
    }
    Kept kept = take();
    const LayerMemory& memory = kept.memory;
    for (const LayerMemory::Weight& weight : memory.weights) {
      if (!weight.is_trained) continue;
      // The gradient of a weight that two layers share is added to that of the other.
      const bool adds = ++gradients_[weight.name] > 1;
      StoredTensors moment = memory.with_weight_gradients;
      if (adds || weight.computed != wider(policy_.grad, weight.dtype))
        moment.push_back({weight.elements, weight.computed});
      total_.moment(moment);
    }
    for (const StoredTensors& moment : memory.backward) total_.moment(moment);
    if (memory.gradient_is_last) kept.tensors.clear();
    switch (memory.gradient) {
      case LayerMemory::Gradient::none:
        return {};
      case LayerMemory::Gradient::of_result:
        return dy;
      case LayerMemory::Gradient::fresh:
        break;
    }
    const TensorPtr dx = fresh(kept.elements, memory.gradient_dtype);
    total_.moment(memory.with_gradient);
    return cast(dx, kept.elements, kept.given);
  }

  // The branches from the last to the first, and the sum of their gradients.
  TensorPtr split(const LayerSpec& spec, const TensorPtr& dy, const Shape& input, bool copies) {
    const Kept kept = take();
    TensorPtr dx;
    for (size_t i = spec.branches.size(); i-- > 0;) {
      const StoredTensor& result = kept.results[i];
      TensorPtr part = copies ? fresh(result.elements, dy->dtype()) : dy;
      part = cast(part, result.elements, result.dtype);
      part = backward(spec.branches[i], part, input);
      if (!dx) {
        dx = part;
        continue;
      }
      dx = fresh(kept.elements, wider(dx->dtype(), part->dtype()));
    }
    return cast(dx, kept.elements, kept.given);
  }

  Kept take() {
    HM_CHECK(!kept_.empty(), "the prediction of memory takes more for backward than forward kept");
    Kept kept = std::move(kept_.back());
    kept_.pop_back();
    return kept;
  }

  const Policy& policy_;
  Total& total_;
  std::vector<LayerFacts> facts_;
  std::map<const LayerSpec*, Shape> outputs_;
  std::vector<Kept> kept_;
  std::map<const LayerSpec*, size_t> bytes_kept_;
  std::map<std::string, int> gradients_;  // how many layers have given one in this step
};

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
        memory.keeps.push_back({static_cast<int64_t>(spec.class_weights.size()), logarithms});
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
  }
  throw Error("a loss of no known kind");
}

}  // namespace

namespace {

// What every step but the first begins with, beside its batch.
void add_parameters(const Walk& walk, const std::vector<LayerSpec>& layers, const Shape& input, const Policy& policy,
                    int states, Total& total) {
  const auto add = [&](Purpose purpose, int64_t elements, DType dtype) {
    total.add(purpose, StoredTensor{elements, dtype}.bytes());
  };
  Shape shape = input;
  for (const LayerSpec& spec : layers) {
    for (const std::vector<LayerSpec>& branch : spec.branches)
      add_parameters(walk, branch, shape, policy, states, total);
    if (layer_kind_named(spec.kind).memory.of_layer()) {
      const LayerMemory memory = walk.memory_of(spec, shape, policy.low);
      add(Purpose::state, memory.states, policy.state);
      for (const LayerMemory::Weight& weight : memory.weights) {
        if (!weight.is_own) continue;
        add(Purpose::weights, weight.elements, weight.dtype);
        if (policy.master) add(Purpose::master, weight.elements, DType::f32);
        if (!weight.is_trained) continue;
        add(Purpose::gradients, weight.elements, wider(policy.grad, weight.dtype));
        add(Purpose::optimizer, states * weight.elements, policy.master ? DType::f32 : weight.dtype);
      }
    }
    shape = walk.output_of(spec);
  }
}

// Forward and the loss; then backward.
void add_step(Walk& walk, const Subject& subject, const Policy& policy, const Shape& targets, const TensorPtr& x,
              Total& total, MemoryPrediction& prediction) {
  Shape shape = subject.input;
  Casts casts;
  const TensorPtr output = walk.forward(subject.network->layers, x, shape, casts, true);
  const std::string name = "loss";
  const MemoryRequest request{
      .policy = policy, .name = name, .input = shape, .output = {1}, .given = output->dtype(), .arguments = {}};
  if (subject.classes == 0) {
    casts.clear();
    prediction.saved = total.now().by_purpose[static_cast<size_t>(Purpose::saved)];
    // Numbers that were drawn once; their dtype is that of the output.
    walk.backward(subject.network->layers, output, subject.input);
    return;
  }
  const LossMemory memory = loss_memory(subject.loss, request, targets);
  TensorPtr read = walk.cast(output, shape.elements(), memory.read);
  std::vector<TensorPtr> kept;
  for (const StoredTensor& one : memory.keeps) kept.push_back(walk.fresh(one.elements, one.dtype));
  const TensorPtr loss = walk.fresh(1, memory.result);
  if (memory.keeps_output) kept.push_back(read);
  for (const TensorPtr& one : kept) one->keep();
  read.reset();
  casts.clear();
  prediction.saved = total.now().by_purpose[static_cast<size_t>(Purpose::saved)];

  const TensorPtr gradient = walk.fresh(shape.elements(), memory.read);
  const TensorPtr given = walk.cast(gradient, shape.elements(), output->dtype());
  kept.clear();
  walk.backward(subject.network->layers, given, subject.input);
}

// The dtype of the last layer's result.
DType result_of(const Subject& subject, const Policy& policy, DType x) {
  Total unused;
  Walk walk(subject, policy, unused);
  Shape shape = subject.input;
  Casts casts;
  const auto input = std::make_shared<Held>(unused, Purpose::input, StoredTensor{subject.input.elements(), x});
  return walk.forward(subject.network->layers, input, shape, casts, false)->dtype();
}

}  // namespace

MemoryPrediction predict_memory(const Subject& subject, const Policy& given, const Settings& settings) {
  HM_CHECK(subject.network, "subject " + subject.id() + " is a function of a program; its layers are not known");
  Policy policy = given;
  if (settings.batchnorm_state) policy.state = *settings.batchnorm_state;
  if (settings.scaler) policy.scaler = *settings.scaler;
  const bool has_labels = subject.classes > 0;
  const DType x_dtype = row_of(subject.data).has_indices ? kLabels : has_labels ? policy.param : policy.low;

  Total total;
  Walk walk(subject, policy, total);
  const Shape output = walk.facts().empty() ? subject.input : walk.facts().back().output;
  add_parameters(walk, subject.network->layers, subject.input, policy, states_of(settings.optimizer, settings.momentum),
                 total);
  // Whether a gradient was not finite.
  if (policy.scaler.kind != ScalerSpec::Kind::none) total.add(Purpose::other, StoredTensor{1, DType::f32}.bytes());

  const auto x = std::make_shared<Held>(total, Purpose::input, StoredTensor{subject.input.elements(), x_dtype});
  Shape targets;
  if (!has_labels) {  // the gradient of the output, drawn once
    total.add(Purpose::input, StoredTensor{output.elements(), result_of(subject, policy, x_dtype)}.bytes());
  } else if (row_of(subject.loss.kind).targets == TargetKind::values) {
    targets = output;
    total.add(Purpose::input, StoredTensor{targets.elements(), policy.param}.bytes());
  } else {
    targets = target_shape(subject.data, subject.input);
    total.add(Purpose::input, StoredTensor{targets.elements(), kLabels}.bytes());
  }

  MemoryPrediction prediction;
  add_step(walk, subject, policy, targets, x, total, prediction);
  prediction.peak = total.peak();
  for (const LayerFacts& facts : walk.facts())
    prediction.layers.push_back({facts.layer, walk.bytes_kept()[facts.layer]});
  return prediction;
}

}  // namespace halfmark::models
