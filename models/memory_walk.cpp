#include "models/memory_walk.h"

#include <string>
#include <string_view>
#include <utility>

#include "kernels/number/error.h"
#include "models/network/layer_kinds.h"

namespace halfmark::models {
namespace {

Arguments arguments_of(const LayerSpec& spec) { return checked(layer_kind_named(spec.kind).arguments, spec.arguments); }
std::string word(const LayerSpec& spec, std::string_view argument) {
  const Arguments arguments = arguments_of(spec);
  return GivenArguments{layer_kind_named(spec.kind).arguments, &arguments}.word(argument);
}
bool is_sum(const LayerSpec& spec) { return word(spec, "how") == "add"; }

}  // namespace

MemoryWalk::MemoryWalk(const Subject& subject, const Policy& policy, MemoryTotal& total)
    : policy_(policy), total_(total) {
  facts_ = layer_facts(*subject.network, subject.input);
  for (const LayerFacts& facts : facts_) outputs_[facts.layer] = facts.output, layers_[facts.layer->name] = facts.layer;
}

HeldTensorPtr MemoryWalk::forward(const std::vector<LayerSpec>& layers, HeldTensorPtr x, Shape& shape,
                                  WeightCasts& casts, bool keeps) {
  for (const LayerSpec& spec : layers) {
    x = forward(spec, x, shape, casts, keeps);
    shape = outputs_.at(&spec);
  }
  return x;
}

HeldTensorPtr MemoryWalk::backward(const std::vector<LayerSpec>& layers, const HeldTensorPtr& gradient,
                                   const Shape& input) {
  std::vector<Shape> inputs;
  Shape shape = input;
  for (const LayerSpec& spec : layers) inputs.push_back(shape), shape = outputs_.at(&spec);
  HeldTensorPtr dx = gradient;
  for (size_t i = layers.size(); i-- > 0;) dx = backward(layers[i], dx, inputs[i]);
  return dx;
}

LayerMemory MemoryWalk::memory_of(const LayerSpec& spec, const Shape& input, DType given) const {
  const LayerKind& kind = layer_kind_named(spec.kind);
  if (const MemoryRule& rule = kind.memory; !rule.of_layer() && rule.joins() == Joins::same_layer)
    return memory_of(*layers_.at(word(spec, "of")), input, outputs_.at(&spec), given);
  return memory_of(spec, input, outputs_.at(&spec), given);
}

LayerMemory MemoryWalk::memory_of(const LayerSpec& spec, const Shape& input, const Shape& output, DType given) const {
  const LayerKind& kind = layer_kind_named(spec.kind);
  const Arguments arguments = arguments_of(spec);
  return kind.memory.of_layer()({.policy = policy_,
                                 .name = spec.name,
                                 .input = input,
                                 .output = output,
                                 .given = given,
                                 .arguments = {kind.arguments, &arguments}});
}

HeldTensorPtr MemoryWalk::layer_input(const HeldTensorPtr& x, int64_t elements) {
  const bool is_cast = casts_layer_inputs(policy_) && is_floating(x->dtype()) && x->dtype() != DType::f64;
  return is_cast ? cast(x, elements, policy_.low) : x;
}

HeldTensorPtr MemoryWalk::forward(const LayerSpec& spec, const HeldTensorPtr& given, const Shape& input,
                                  WeightCasts& casts, bool keeps) {
  const MemoryRule rule = layer_kind_named(spec.kind).memory;
  if (!rule.of_layer()) {
    switch (rule.joins()) {
      case Joins::sum:
        return join(spec, given, input, casts, keeps, false);
      case Joins::concat:
        return join(spec, given, input, casts, keeps, true);
      case Joins::side: {
        Shape shape = input;
        HeldTensorPtr result = forward(spec.branches[0], given, shape, casts, keeps);
        waiting_[spec.name] = {std::move(result), shape.elements()};
        return given;
      }
      case Joins::join:
        return join_waiting(spec, given, input, keeps);
      case Joins::same_layer:
        break;
      case Joins::recomputed: {
        if (keeps) {
          bytes_kept_[&spec] += given->keep();
          kept_.push_back({.tensors = {given}, .elements = input.elements(), .given = given->dtype()});
        }
        Shape shape = input;
        return forward(spec.branches[0], given, shape, casts, false);
      }
    }
  }
  const HeldTensorPtr x = layer_input(given, input.elements());
  LayerMemory memory = memory_of(spec, input, x->dtype());
  const HeldTensorPtr read = cast(x, input.elements(), memory.read);
  KeptByForward kept{.tensors = {}, .elements = input.elements(), .given = x->dtype(), .before_cast = given->dtype()};
  for (const LayerMemory::Weight& weight : memory.weights) {
    if (weight.read == weight.dtype) continue;
    HeldTensorPtr& copy = casts[{weight.name, weight.read}];
    if (!copy) copy = std::make_shared<HeldTensor>(total_, Purpose::casts, StoredTensor{weight.elements, weight.read});
    if (weight.kept) kept.tensors.push_back(copy);
  }
  for (const StoredTensor& one : memory.keeps) kept.tensors.push_back(fresh(one.elements, one.dtype));
  for (const StoredTensor& one : memory.kept_casts)
    kept.tensors.push_back(std::make_shared<HeldTensor>(total_, Purpose::casts, one));
  for (const StoredTensors& moment : memory.before_result) total_.moment(moment);
  HeldTensorPtr result = memory.is_view ? x : fresh(outputs_.at(&spec).elements(), memory.result);
  total_.moment(memory.with_result);
  if (!keeps) return result;
  if (memory.keeps_input) kept.tensors.push_back(read);
  if (memory.keeps_result) kept.tensors.push_back(result);
  for (const HeldTensorPtr& one : kept.tensors) bytes_kept_[&spec] += one->keep();
  kept.memory = std::move(memory);
  kept_.push_back(std::move(kept));
  return result;
}

HeldTensorPtr MemoryWalk::join(const LayerSpec& spec, const HeldTensorPtr& x, const Shape& input, WeightCasts& casts,
                               bool keeps, bool copies) {
  std::vector<HeldTensorPtr> results;
  KeptByForward kept{.tensors = {}, .elements = input.elements(), .given = x->dtype()};
  DType widest = DType::f32;
  for (const std::vector<LayerSpec>& branch : spec.branches) {
    Shape shape = input;
    results.push_back(forward(branch, x, shape, casts, keeps));
    kept.results.push_back({shape.elements(), results.back()->dtype()});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = layer_input(results[i], kept.results[i].elements);
    widest = i == 0 ? results[i]->dtype() : wider(widest, results[i]->dtype());
  }
  HeldTensorPtr result = fresh(outputs_.at(&spec).elements(), widest);
  for (size_t i = 0; i < results.size(); ++i)
    if (copies && results[i]->dtype() != widest) total_.moment({{kept.results[i].elements, widest}});
  if (keeps) kept_.push_back(std::move(kept));
  return result;
}

HeldTensorPtr MemoryWalk::backward(const LayerSpec& spec, const HeldTensorPtr& dy, const Shape& input) {
  const MemoryRule rule = layer_kind_named(spec.kind).memory;
  if (!rule.of_layer()) {
    switch (rule.joins()) {
      case Joins::sum:
        return split(spec, dy, input, false);
      case Joins::concat:
        return split(spec, dy, input, true);
      case Joins::side: {
        const Waiting gradient = collect(spec.name);
        const HeldTensorPtr part = backward(spec.branches[0], gradient.tensor, input);
        return fresh(input.elements(), wider(dy->dtype(), part->dtype()));
      }
      case Joins::join:
        return split_waiting(spec, dy);
      case Joins::same_layer:
        break;
      case Joins::recomputed: {
        const KeptByForward kept = take();
        WeightCasts casts;
        Shape shape = input;
        forward(spec.branches[0], kept.tensors[0], shape, casts, true);
        casts.clear();
        return backward(spec.branches[0], dy, input);
      }
    }
  }
  KeptByForward kept = take();
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
      return cast(dy, kept.elements, kept.before_cast);
    case LayerMemory::Gradient::fresh:
      break;
  }
  HeldTensorPtr dx = fresh(kept.elements, memory.gradient_dtype);
  total_.moment(memory.with_gradient);
  if (memory.cast_is_last) kept.tensors.clear();
  dx = cast(dx, kept.elements, kept.given);
  kept.tensors.clear();
  return cast(dx, kept.elements, kept.before_cast);
}

HeldTensorPtr MemoryWalk::split(const LayerSpec& spec, const HeldTensorPtr& dy, const Shape& input, bool copies) {
  const KeptByForward kept = take();
  HeldTensorPtr dx;
  for (size_t i = spec.branches.size(); i-- > 0;) {
    const StoredTensor& result = kept.results[i];
    HeldTensorPtr part = copies ? fresh(result.elements, dy->dtype()) : dy;
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

HeldTensorPtr MemoryWalk::join_waiting(const LayerSpec& spec, const HeldTensorPtr& given, const Shape& input,
                                       bool keeps) {
  const Waiting waiting = collect(word(spec, "of"));
  const HeldTensorPtr x = layer_input(given, input.elements()), z = layer_input(waiting.tensor, waiting.elements);
  const DType widest = wider(x->dtype(), z->dtype());
  const StoredTensor first{input.elements(), given->dtype()}, second{waiting.elements, waiting.tensor->dtype()};
  HeldTensorPtr result = fresh(outputs_.at(&spec).elements(), widest);
  for (const auto& [part, elements] : {std::pair{x, first.elements}, {z, second.elements}})
    if (!is_sum(spec) && part->dtype() != widest) total_.moment({{elements, widest}});
  if (keeps) kept_.push_back({.elements = first.elements, .given = first.dtype, .results = {second}});
  return result;
}

HeldTensorPtr MemoryWalk::split_waiting(const LayerSpec& spec, const HeldTensorPtr& dy) {
  const KeptByForward kept = take();
  const StoredTensor& side = kept.results[0];
  HeldTensorPtr dx = dy, dz = dy;
  if (!is_sum(spec)) dx = fresh(kept.elements, dy->dtype()), dz = fresh(side.elements, dy->dtype());
  waiting_[word(spec, "of")] = {cast(dz, side.elements, side.dtype), side.elements};
  return cast(dx, kept.elements, kept.given);
}

MemoryWalk::Waiting MemoryWalk::collect(const std::string& name) {
  const auto found = waiting_.find(name);
  HM_CHECK(found != waiting_.end(), "the prediction of memory finds no result of " + name);
  Waiting one = std::move(found->second);
  waiting_.erase(found);
  return one;
}

KeptByForward MemoryWalk::take() {
  HM_CHECK(!kept_.empty(), "the prediction of memory takes more for backward than forward kept");
  KeptByForward kept = std::move(kept_.back());
  kept_.pop_back();
  return kept;
}

}  // namespace halfmark::models
