#include "models/network/folded.h"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "kernels/number/error.h"
#include "models/network/layer_kinds.h"

namespace halfmark::models {
namespace {

// The argument of a layer, or the usual one of its kind.
Value argument_of(const LayerSpec& layer, std::string_view name) {
  const LayerKind& kind = layer_kind_named(layer.kind);
  const Arguments given = checked(kind.arguments, layer.arguments);
  if (const auto found = given.find(name); found != given.end()) return found->second;
  for (const ArgumentRow& row : kind.arguments)
    if (row.name == name && row.usual) return *row.usual;
  throw Error("layer " + layer.name + " has no argument " + std::string(name));
}

// Layers that another one names, as `again` does: they run elsewhere too, where the pair is none.
void add_named(const std::vector<LayerSpec>& layers, std::set<std::string>& names) {
  for (const LayerSpec& layer : layers) {
    for (const char* argument : {"of", "weight_of"})
      if (const auto found = layer.arguments.find(argument); found != layer.arguments.end())
        names.insert(std::get<std::string>(found->second));
    for (const auto& branch : layer.branches) add_named(branch, names);
  }
}

bool folds(const LayerSpec& before, const LayerSpec& layer, const std::set<std::string>& used_again) {
  return layer.kind == "batchnorm2d" && before.kind == "conv2d" && !used_again.contains(before.name) &&
         !used_again.contains(layer.name) && !std::get<bool>(argument_of(before, "weight_norm"));
}

std::vector<LayerSpec> folded(const std::vector<LayerSpec>& layers, const std::set<std::string>& used_again,
                              std::vector<FoldedPair>& pairs) {
  std::vector<LayerSpec> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i > 0 && folds(layers[i - 1], layers[i], used_again)) {
      pairs.push_back({layers[i - 1].name, layers[i].name, std::get<double>(argument_of(layers[i], "epsilon"))});
      result.back().arguments.insert_or_assign("bias", true);
      continue;
    }
    result.push_back(layers[i]);
    for (auto& branch : result.back().branches) branch = folded(branch, used_again, pairs);
  }
  return result;
}

// Takes values out of the map; `otherwise` for each of `count` if there are none.
std::vector<double> taken(NamedValues& values, const std::string& name, size_t count, std::optional<double> otherwise) {
  const auto found = values.find(name);
  if (found == values.end()) {
    HM_CHECK(otherwise, "a batch norm cannot be folded: there is no " + name);
    return std::vector<double>(count, *otherwise);
  }
  std::vector<double> all = std::move(found->second);
  values.erase(found);
  HM_CHECK(all.size() == count, "a batch norm cannot be folded: " + name + " has " + std::to_string(all.size()) +
                                    " values, not " + std::to_string(count));
  return all;
}

}  // namespace

FoldedNetwork fold_batchnorm(const Network& network) {
  FoldedNetwork made;
  std::set<std::string> used_again;
  add_named(network.layers, used_again);
  made.network.layers = folded(network.layers, used_again, made.pairs);
  return made;
}

NamedValues folded_values(const std::vector<FoldedPair>& pairs, NamedValues values) {
  for (const FoldedPair& pair : pairs) {
    const auto weight = values.find(pair.convolution + ".weight");
    const auto mean_found = values.find(pair.batchnorm + ".running_mean");
    HM_CHECK(weight != values.end() && mean_found != values.end(),
             "a batch norm cannot be folded: " + pair.convolution + " has no weight or " + pair.batchnorm + " no mean");
    const size_t channels = mean_found->second.size(), width = weight->second.size() / channels;
    const std::vector<double> mean = taken(values, pair.batchnorm + ".running_mean", channels, {}),
                              variance = taken(values, pair.batchnorm + ".running_variance", channels, {}),
                              scale = taken(values, pair.batchnorm + ".scale", channels, 1),
                              shift = taken(values, pair.batchnorm + ".shift", channels, 0);
    std::vector<double> bias = taken(values, pair.convolution + ".bias", channels, 0);
    for (size_t c = 0; c < channels; ++c) {
      const double factor = scale[c] / std::sqrt(variance[c] + pair.epsilon);
      for (size_t i = 0; i < width; ++i) weight->second[c * width + i] *= factor;
      bias[c] = (bias[c] - mean[c]) * factor + shift[c];
    }
    values[pair.convolution + ".bias"] = std::move(bias);
  }
  return values;
}

}  // namespace halfmark::models
