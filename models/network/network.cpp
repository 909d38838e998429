#include "models/network/network.h"

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "kernels/number/error.h"
#include "models/network/layer_kinds.h"
#include "models/network/shape_device.h"

namespace halfmark::models {
namespace {

// Deeper nesting than any model has; recursion over more would overflow the stack.
constexpr int kDeepest = 32;

class Builder {
 public:
  // `facts`, if not null, receives those of every layer.
  Builder(const Init& init, const Settings& settings, std::vector<LayerFacts>* facts)
      : init_(init), settings_(settings), facts_(facts) {}

  // The layers in sequence; `shape` becomes that of their output.
  LayerPtr sequence(const std::string& name, const std::vector<LayerSpec>& specs, Shape& shape, int depth) {
    std::vector<LayerPtr> layers;
    for (const LayerSpec& spec : specs) layers.push_back(layer(spec, shape, depth));
    return sequential(name, std::move(layers));
  }

  // After all layers. Throws Error for a side branch whose result no layer joins.
  void check_complete() const {
    for (const auto& [name, one] : earlier_)
      if (one.kind == "side" && !one.is_joined) throw LayerError(*names_.at(name), "no layer joins its result");
  }

 private:
  LayerPtr layer(const LayerSpec& spec, Shape& shape, int depth) {
    if (depth >= kDeepest) throw LayerError(spec, "is nested deeper than " + std::to_string(kDeepest) + " levels");
    const auto [first, is_new] = names_.emplace(spec.name, &spec);
    if (!is_new) {
      const LayerSpec& other = *first->second;
      throw LayerError(spec, "its name is that of another layer, " + other.kind +
                                 (other.line ? " in line " + std::to_string(other.line) : ""));
    }
    const Policy& policy = policy_of_layer(init_.policy, spec.name);
    const Init init{init_.device, policy, init_.key, init_.round_first, init_.draws};
    LayerRequest request{.init = init, .settings = settings_, .name = spec.name, .input = shape};
    request.earlier = &earlier_;
    for (size_t i = 0; i < spec.branches.size(); ++i) {
      Shape branch_shape = shape;
      const std::vector<LayerSpec>& branch = spec.branches[i];
      request.branches.push_back(
          branch.empty() ? nullptr : sequence(spec.name + "." + std::to_string(i), branch, branch_shape, depth + 1));
      request.branch_outputs.push_back(branch_shape);
    }
    try {
      const LayerKind& kind = layer_kind_named(spec.kind);
      check_branches(kind, spec.branches.size());
      const Arguments arguments = checked(kind.arguments, spec.arguments);
      request.given = {kind.arguments, &arguments};
      LayerFacts facts{.layer = &spec, .depth = depth, .output = {}};
      if (facts_)
        for (const LayerPtr& branch : request.branches)
          if (branch) add(*branch, shape, -1, facts);
      LayerPtr made = kind.make(request);
      // A layer with branches has nothing to compute but their sum or concatenation, in the wider dtype.
      if (!init_.policy.layers.empty() && kind.branches == LayerKind::Branches::none)
        made = under_policy(policy, std::move(made));
      earlier_[spec.name] = {made.get(), spec.kind, shape,
                             request.branch_outputs.empty() ? Shape() : request.branch_outputs[0]};
      if (facts_) add(*made, shape, 1, facts);
      facts.output = shape = made->output_shape(shape);
      if (facts_) facts_->push_back(facts);
      constexpr double kMost = 0x1p36;  // as for the sizes of subjects: more than any machine's memory
      double elements = 1;
      for (const int64_t one : shape.extents()) elements *= static_cast<double>(one);
      HM_CHECK(elements <= kMost, "its output would have more than 2^36 elements");
      return made;
    } catch (const Error& error) {
      throw LayerError(spec, error.what());
    }
  }

  static void add(Layer& layer, const Shape& input, int sign, LayerFacts& facts) {
    for (const Param* param : layer.params()) facts.parameters += sign * param->value.elements();
    facts.forward_flops += sign * layer.forward_flops(input);
  }

  static void check_branches(const LayerKind& kind, size_t count) {
    using Branches = LayerKind::Branches;
    HM_CHECK(kind.branches != Branches::none || count == 0, "has no branches");
    HM_CHECK(kind.branches != Branches::one || count == 1, "has one branch, not " + std::to_string(count));
    HM_CHECK(kind.branches != Branches::several || count >= 2,
             "needs two branches or more, not " + std::to_string(count));
  }

  const Init& init_;
  const Settings& settings_;
  std::vector<LayerFacts>* facts_;
  std::map<std::string, const LayerSpec*> names_;
  std::map<std::string, EarlierLayer> earlier_;
};

void write(const std::vector<LayerSpec>& specs, std::string& text) {
  text += '[';
  for (const LayerSpec& spec : specs) {
    const LayerKind& kind = layer_kind_named(spec.kind);
    text += spec.kind + " " + spec.name;
    for (const auto& [name, value] : checked(kind.arguments, spec.arguments)) text += " " + name + "=" + text_of(value);
    for (const auto& branch : spec.branches) write(branch, text);
    text += ';';
  }
  text += ']';
}

// f of every layer that joins no branches, in the order in which they run.
void each_single(const std::vector<LayerSpec>& specs, const auto& f) {
  for (const LayerSpec& spec : specs) {
    for (const auto& branch : spec.branches) each_single(branch, f);
    const LayerKind& kind = layer_kind_named(spec.kind);
    if (kind.branches == LayerKind::Branches::none) f(spec, kind);
  }
}
}  // namespace

std::vector<std::string> layers_with_policy(const Network& network) {
  std::vector<std::string> names;
  each_single(network.layers, [&](const LayerSpec& spec, const LayerKind&) { names.push_back(spec.name); });
  names.emplace_back("loss");
  return names;
}
std::vector<std::string> quantised_layers(const Network& network) {
  std::vector<std::string> names;
  each_single(network.layers, [&](const LayerSpec& spec, const LayerKind& kind) {
    const auto norm = spec.arguments.find("weight_norm");
    const bool has_norm = norm != spec.arguments.end() && norm->second == Value(true);
    if (kind.quantised && !has_norm) names.push_back(spec.name);
  });
  return names;
}

LayerPtr build(const Network& network, const std::string& name, const Shape& input, const Init& init,
               const Settings& settings) {
  Shape shape = input;
  Builder builder(init, settings, nullptr);
  LayerPtr made = builder.sequence(name, network.layers, shape, 0);
  builder.check_complete();
  return made;
}

std::vector<LayerFacts> layer_facts(const Network& network, const Shape& input) {
  ShapeDevice device;
  const Init init{.device = device, .policy = policy_named("fp32"), .key = RandomKey(0), .draws = false};
  std::vector<LayerFacts> facts;
  const Settings settings;
  Shape shape = input;
  Builder builder(init, settings, &facts);
  const LayerPtr made = builder.sequence("network", network.layers, shape, 0);
  builder.check_complete();
  return facts;
}

Shape output_shape(const Network& network, const Shape& input) {
  const std::vector<LayerFacts> facts = layer_facts(network, input);
  return facts.empty() ? input : facts.back().output;
}

std::string text_of(const Network& network) {
  std::string text;
  write(network.layers, text);
  return text;
}

}  // namespace halfmark::models
