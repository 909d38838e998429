#include "accuracy/experiments/plan_hints.h"

#include <deque>
#include <utility>

#include "models/network/layer_kinds.h"

namespace halfmark::accuracy {

namespace {

using Names = std::vector<std::string>;

class Walk {
 public:
  std::map<std::string, Names> producers;

  Names sequence(const std::vector<LayerSpec>& specs, Names from) {
    for (const LayerSpec& spec : specs) from = layer(spec, from);
    return from;
  }

 private:
  Names layer(const LayerSpec& spec, const Names& from) {
    if (spec.branches.empty()) {
      Names read = from;
      if (spec.kind == "join") {
        const Names& side = sides_[std::get<std::string>(spec.arguments.at("of"))];
        read.insert(read.end(), side.begin(), side.end());
      }
      producers[spec.name] = read;
      return {spec.name};
    }
    Names ends;
    for (const auto& branch : spec.branches) {
      const Names end = sequence(branch, from);
      ends.insert(ends.end(), end.begin(), end.end());
    }
    if (spec.kind != "side") return ends;
    sides_[spec.name] = ends;
    return from;
  }

  std::map<std::string, Names> sides_;
};

constexpr int kTriedBefore = 4;

}  // namespace

std::map<std::string, Names> producers_of(const Network& network) {
  Walk walk;
  walk.producers["loss"] = walk.sequence(network.layers, {});
  return std::move(walk.producers);
}

PlanHints::PlanHints(const Network& network, std::vector<std::string> layers, double tolerance)
    : producers_(producers_of(network)), tolerance_(tolerance) {
  for (size_t i = 0; i < layers.size(); ++i) place_[layers[i]] = i;
}

std::optional<size_t> PlanHints::before(const std::string& layer, const ItemSet& in_fp32) const {
  std::deque<std::string> next = {layer};
  std::set<std::string> seen;
  while (!next.empty()) {
    const std::string name = next.front();
    next.pop_front();
    if (!seen.insert(name).second) continue;
    const auto known = producers_.find(name);
    if (known == producers_.end()) continue;
    for (const std::string& producer : known->second) {
      const auto place = place_.find(producer);
      if (place != place_.end() && !in_fp32[place->second]) return place->second;
      next.push_back(producer);
    }
  }
  return {};
}

std::optional<size_t> PlanHints::next(const ItemSet& in_fp32, const PassErrors& errors) {
  for (const TensorError& tensor : errors.tensors) {
    if (tensor.error <= tolerance_) continue;
    const auto place = place_.find(tensor.layer);
    if (place == place_.end()) continue;
    if (!in_fp32[place->second]) return place->second;
    const std::string key = tensor.layer + " " + tensor.what + (tensor.evaluation ? " evaluation" : "");
    if (left_alone_.contains(key)) continue;
    const std::optional<size_t> earlier = tried_[key]++ < kTriedBefore ? before(tensor.layer, in_fp32) : std::nullopt;
    if (earlier) return earlier;
    left_alone_.insert(key);
  }
  return {};
}

}  // namespace halfmark::accuracy
