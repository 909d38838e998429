// Reads the name of a policy: that of a row, with changes of cast rules, loss scaler and single layers.
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/policy.h"

namespace halfmark::models {
namespace {

constexpr std::string_view kParts[] = {"rules", "scaler", "precision"};

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

const Policy& row_named(std::string_view name) { return named("policy", policies(), name); }

std::vector<LayerPolicy> layers_of(const std::string& text) {
  std::vector<LayerPolicy> layers;
  for (const std::string& entry : split(text, ',')) {
    const size_t equals = entry.find('=');
    HM_CHECK(equals != entry.npos && equals > 0 && equals + 1 < entry.size(),
             "precision '" + text + "': '" + entry + "' is not LAYER=POLICY, as in conv1=fp32 or block*.bn=fp16");
    std::string pattern = entry.substr(0, equals);
    HM_CHECK(pattern.find_first_of("/ ") == pattern.npos,
             "precision '" + text + "': a layer's name has no slash and no blank");
    HM_CHECK(std::ranges::find(layers, pattern, &LayerPolicy::pattern) == layers.end(),
             "precision '" + text + "': '" + pattern + "' is there twice");
    layers.push_back({std::move(pattern), &row_named(entry.substr(equals + 1))});
  }
  return layers;
}

std::string text_of(const std::vector<LayerPolicy>& layers) {
  std::string text;
  for (const LayerPolicy& one : layers)
    text += (text.empty() ? "" : ",") + one.pattern + "=" + std::string(one.policy->name);
  return text;
}

Policy changed(const Policy& row, std::string_view text, const std::vector<std::string>& parts) {
  Policy policy = row;
  policy.base = &row;
  std::vector<std::string_view> seen;
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    if (equals == std::string::npos || std::ranges::find(kParts, key) == std::end(kParts))
      throw Error("policy '" + std::string(text) + "': '" + parts[i] +
                  "' is not rules=RULES, scaler=SCALER or precision=LAYER=POLICY");
    const std::string value = parts[i].substr(equals + 1);
    HM_CHECK(std::ranges::find(seen, key) == seen.end(), "policy '" + std::string(text) + "' has two parts " + key);
    seen.push_back(*std::ranges::find(kParts, key));
    if (key == "rules") {
      HM_CHECK(row.rules, "policy " + std::string(row.name) + " casts nothing, so it takes no cast rules; amp-" +
                              (row.low == DType::bf16 ? "bf16" : "fp16") + " does");
      policy.rules = &cast_rules_named(value);
    }
    if (key == "scaler") policy.scaler = scaler_of(value);
    if (key == "precision") policy.layers = layers_of(value);
  }
  return policy;
}

std::string name_of(const Policy& policy) {
  const Policy& row = *policy.base;
  std::string name(row.name);
  if (policy.rules != row.rules) name += "+rules=" + std::string(policy.rules->name);
  if (!(policy.scaler == row.scaler)) name += "+scaler=" + text_of(policy.scaler);
  if (!policy.layers.empty()) name += "+precision=" + text_of(policy.layers);
  return name;
}

}  // namespace

const Policy& policy_named(std::string_view text) {
  const std::vector<std::string> parts = split(text, '+');
  const Policy& row = row_named(parts[0]);
  if (parts.size() == 1) return row;
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Policy>> known;
  Policy policy = changed(row, text, parts);
  const std::string name = name_of(policy);
  if (name == row.name) return row;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(name);
  if (is_new) {
    entry->second = std::make_unique<Policy>(std::move(policy));
    entry->second->name = entry->first;
  }
  return *entry->second;
}

size_t place_of(const Policy& policy) {
  return static_cast<size_t>((policy.base ? policy.base : &policy) - policies().data());
}

bool matches_layer(const std::string& pattern, const std::string& layer) {
  return fnmatch(pattern.c_str(), layer.c_str(), 0) == 0;
}

const LayerPolicy* entry_of_layer(const Policy& model, const std::string& layer) {
  const auto found = std::find_if(model.layers.rbegin(), model.layers.rend(),
                                  [&](const LayerPolicy& one) { return matches_layer(one.pattern, layer); });
  return found == model.layers.rend() ? nullptr : &*found;
}
const Policy& policy_of_layer(const Policy& model, const std::string& layer) {
  const LayerPolicy* entry = entry_of_layer(model, layer);
  return entry ? *entry->policy : model;
}

}  // namespace halfmark::models
